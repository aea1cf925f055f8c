"""Cross-attention: a cache that is filled once, with an encoder's text, and then only read.

Two caches then serve one request (arXiv:1706.03762; BART, T5, Whisper).
"""

from collections.abc import Hashable, Sequence

from kvlib.arguments import describe
from kvlib.caches.checks import check_plan
from kvlib.caches.protocol import Cache
from kvlib.caches.retention.rules import KeepAll
from kvlib.caches.step import Step, Ticket


def cross_step(cache: Cache, seq_ids: Sequence[Hashable], q_lens: Sequence[int]) -> Step:
    """A step whose queries see all tokens of their requests and append none.

    seq_ids: B names of filled requests. q_lens: B numbers of queries. The step has T = Σ q_lens
    rows; ``cache.run(layer, q, step)`` takes q (T, Hq, Dk), and returns o (T, Hq, Dv).

    Every query is put at the last position of its request: a request with three queries is three
    times in ``step.seq_ids``, and its keys are read once with ``attention=run_cascade``. The step
    ends when one of its requests is planned, truncated, freed, or has another ``cross_step``.

    Raises ValueError for a request that is empty, lacks keys in a layer, or was planned with tokens
    (a lookup by the beginning must not find keys that depend on a whole text), for a layer with a
    window, and for a rule other than `KeepAll`, because only a plan applies it.

    >>> import numpy as np
    >>> from kvlib import DenseCache, LayerSpec
    >>> memory = DenseCache([LayerSpec(1, 4)], max_seqs=1, max_seq_len=8, xp=np)
    >>> held, k = memory.add("a"), np.eye(4, dtype=np.float32)[:, None, :]
    >>> memory.append(0, k, k, memory.plan(["a"], [4]))  # four tokens of the encoder
    >>> memory.run(0, 0 * k[:1], cross_step(memory, ["a"], [1]))  # a query that likes all alike
    array([[[0.25, 0.25, 0.25, 0.25]]], dtype=float32)
    """
    sequences, lengths, _ = check_plan(cache._sequences, seq_ids, q_lens, None)
    for layer, spec in enumerate(cache.layers):
        if spec.window is not None:
            raise ValueError(
                f"layer {layer} looks at a window of {spec.window} tokens, counted back from the "
                "query. A query of another text has no place among them: leave window out"
            )
    for group in cache.groups:
        if group.retention != KeepAll():
            raise ValueError(
                f"{group.retention!r} of layer {group.layers[0]} would never be applied: a plan "
                "does that, and a text that is filled once is not planned again"
            )
    for seq in sequences:
        name, gap = describe(seq.name), seq.next_gap()
        if not seq.length:
            raise ValueError(f"request {name} has no tokens yet: plan and append the encoder's")
        if gap is not None:
            raise ValueError(
                f"request {name} lacks keys from token {gap} on: append the encoder's keys and "
                "values to all layers first"
            )
        if getattr(seq.state, "tokens", None):
            raise ValueError(
                f"request {name} was planned with tokens, so other requests could find its blocks "
                "by how its text begins. An encoder's keys depend on the whole text: leave tokens "
                "out of plan, and fork a request to share it"
            )
    ticket = Ticket(n := len(cache.layers), appended=set(range(n)))
    rows = [seq for seq, n in zip(sequences, lengths, strict=True) for _ in range(n)]
    for seq in sequences:
        if seq.ticket is not None:
            seq.ticket.live = False
        seq.ticket = ticket
    return Step(
        cache,
        ticket,
        tuple(seq.name for seq in rows),
        (1,) * len(rows),
        tuple(seq.length for seq in rows),
        [seq.state for seq in rows],
        appends=False,
    )
