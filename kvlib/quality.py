"""What a cache does to a model's answers: bits per byte of a text, and recall of a detail in it."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np

from kvlib.arguments import check_integer, check_seed
from kvlib.arrays import to_numpy
from kvlib.caches import Cache
from kvlib.model.decoder import Decoder
from kvlib.reference import sample_text
from kvlib.reference.recall import LEAST_DISTANCE, VALUE_LENGTH, recall_prompt
from kvlib.serve.prompts import as_ids, token_ids

_names = count()
MOST_TRIALS = 10**6  # their prompts are made before the first is asked


@dataclass(frozen=True)
class Loss:
    """The loss of a model on a text.

    bits     (n,) float64: −log2 of the probability that the model gave to each predicted token
    kl       (n,) float64, in bits: the Kullback-Leibler divergence of the reference's distribution
             from this one at each predicted token; None where no reference was given
    logits   (n, V) float32, for a measurement that takes this one as its reference

    >>> import numpy as np
    >>> Loss(np.array([1.0, 3.0]), None, np.zeros((2, 256))).bits_per_token  # p was 1/2, then 1/8
    2.0
    """

    bits: np.ndarray
    kl: np.ndarray | None
    logits: np.ndarray

    @property
    def bits_per_token(self) -> float:
        """The mean; bits per byte where a token is a byte, as in the reference model."""
        return float(self.bits.mean())

    @property
    def mean_kl(self) -> float | None:
        return None if self.kl is None else float(self.kl.mean())

    def times(self, other: "Loss") -> float:
        """The ratio of this loss to another: 1.01 is one percent more bits."""
        return self.bits_per_token / other.bits_per_token


@dataclass(frozen=True)
class Recall:
    """How many of `trials` strings the model repeated, `distance` bytes after it had read them.

    right: whether each answer was right; answers: the model's answers.

    >>> found = Recall(256, (True, True, False, True), (b"qgxz", b"ciny", b"pyyl", b"gzul"))
    >>> found.trials, found.accuracy
    (4, 0.75)
    """

    distance: int
    right: tuple[bool, ...]
    answers: tuple[bytes, ...]

    @property
    def trials(self) -> int:
        return len(self.right)

    @property
    def accuracy(self) -> float:
        return sum(self.right) / len(self.right)


def loss(
    model: Decoder,
    cache: Cache,
    text: str | Sequence[int] | None = None,
    *,
    window: int | None = None,
    chunk: int = 64,
    reference: Loss | None = None,
) -> Loss:
    """Feed a text through the cache, `chunk` tokens per step, and see what the model predicts.

    text        token ids, or text for a model with a tokenizer; by default the first 2,048 bytes of
                the shipped sample, on which the reference model was not trained
    window      a longer text is cut into windows of so many tokens, each read from an empty cache;
                the model's own limit by default. The cache needs room for one.
    chunk       tokens per step. With codecs that keep the newest tokens unencoded, a long step
                reads codes of most near neighbours, so its loss is larger than in decoding.
    reference   the result of another cache for the same text: adds Kullback-Leibler divergences

    Raises ValueError for fewer than two tokens, and for another text's reference.

    >>> from kvlib import load_reference_model
    >>> model = load_reference_model()
    >>> loss(model, model.new_cache(1, 64), b"import os\\nimport sys\\n").bits.shape
    (20,)
    """
    window = model.config.max_position_embeddings if window is None else window
    chunk, window = check_integer("chunk", chunk), check_integer("window", window, 2)
    (tokens,), _ = as_ids(model, [sample_text().encode()[:2048] if text is None else text])
    pieces = [tokens[a : a + window] for a in range(0, len(tokens), window)]
    needed = [t for piece in pieces for t in piece[1:]]  # a window's first token is not predicted
    if not needed:
        raise ValueError(f"text must have at least 2 tokens, got {len(tokens)}")
    if reference is not None and reference.bits.shape != (len(needed),):
        raise ValueError(
            f"reference must be of the same text: {len(needed)} predictions, "
            f"got {reference.bits.shape[0]}"
        )
    logits = np.concatenate([teacher_forced(model, cache, p, chunk)[:-1] for p in pieces])
    log_p, kl = _log_softmax(logits), None
    if reference is not None:
        log_r = _log_softmax(reference.logits)
        kl = (np.exp(log_r) * (log_r - log_p)).sum(axis=1) / math.log(2)
    return Loss(-log_p[np.arange(len(needed)), needed] / math.log(2), kl, logits)


def teacher_forced(
    model: Decoder, cache: Cache, tokens: Sequence[int], chunk: int = 64
) -> np.ndarray:
    """Logits (n, V) float32 after each of n tokens, which go through the cache in chunks.

    The request is freed again; nothing is looked up or published. Raises CacheFull or OutOfBlocks.

    >>> from kvlib import load_reference_model
    >>> model = load_reference_model()
    >>> logits = teacher_forced(model, model.new_cache(1, 64), list(b"import os"), chunk=4)
    >>> bytes(logits.argmax(axis=1).tolist())  # its bet on what follows i, im, imp, ...
    b'nport ss\\n'
    """
    tokens, chunk = token_ids("tokens", tokens), check_integer("chunk", chunk)
    with _request(model, cache, chunk) as feed:
        return feed(tokens, "all")


@contextmanager
def _request(
    model: Decoder, cache: Cache, chunk: int
) -> Iterator[Callable[[Sequence[int], str], np.ndarray]]:
    """A request that is freed again at the end: feed(tokens, rows) → the logits of these rows."""
    name = ("quality", next(_names))
    cache.add(name)

    def feed(tokens: Sequence[int], rows: str) -> np.ndarray:
        found = []
        for a in range(0, len(tokens), chunk):
            part = list(tokens[a : a + chunk])
            step = cache.plan([name], [len(part)])
            found.append(to_numpy(model.forward(part, cache, step, rows=rows)))
        return np.concatenate(found)

    try:
        yield feed
    finally:
        cache.free(name)


def recall(
    model: Decoder,
    cache: Cache,
    *,
    trials: int = 20,
    distance: int = 256,
    names: int = 4,
    chunk: int = 64,
    seed: int = 0,
    lead: int = 64,
) -> Recall:
    """Ask for strings that were assigned to `names` names, `distance` bytes before.

    The prompts are those of :func:`kvlib.reference.recall.recall_prompt`, which begin with about
    `lead` bytes of code; a token is a byte. They go through the cache in chunks, and the four bytes
    of the answer are decoded greedily. Raises ValueError as recall_prompt.

    >>> from kvlib import load_reference_model
    >>> model = load_reference_model()
    >>> recall(model, model.new_cache(1, 256), trials=2, distance=64).accuracy
    1.0
    """
    trials, chunk = check_integer("trials", trials, most=MOST_TRIALS), check_integer("chunk", chunk)
    distance = check_integer("distance", distance, LEAST_DISTANCE)
    rng = random.Random(check_seed("seed", seed))
    asked = [recall_prompt(rng, distance, names, lead=lead) for _ in range(trials)]
    answers = []
    for prompt, _ in asked:
        with _request(model, cache, chunk) as feed:
            said = [int(feed(prompt, "last")[-1].argmax())]
            while len(said) < VALUE_LENGTH:
                said.append(int(feed(said[-1:], "last")[-1].argmax()))
        answers.append(bytes(said))
    right = (answer == bound for answer, (_, bound) in zip(answers, asked, strict=True))
    return Recall(distance, tuple(right), tuple(answers))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))
