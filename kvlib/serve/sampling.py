"""From logits to a token, drawn with random numbers that depend on seed and position alone."""

from typing import Any

import numpy as np

from kvlib.arguments import check_integer, check_seed, describe
from kvlib.arrays import Array
from kvlib.serve.distribution import check_settings, check_shape, greedy, probabilities


def sample(
    logits: Array,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rngs: np.random.Generator | list[np.random.Generator] | None = None,
) -> list[int]:
    """Draw one token for each row of logits (B, V), or take the likeliest: B ids.

    ``temperature`` 0 is greedy. ``rngs``: one generator, or one per row; keep them from call to
    call. CuPy's logits stay on the device, where :func:`kvlib.kernels.sample_tokens` draws the same
    tokens, but for one in millions.

    Raises ValueError if a draw lacks ``rngs``, for settings that define no distribution, and for a
    row whose largest logit is not finite.

    >>> import numpy as np
    >>> sample(np.array([[0.0, 5.0, 1.0]]), top_k=1, rngs=np.random.default_rng(0))
    [1]
    """
    temperature, top_k, top_p = check_settings(temperature, top_k, top_p)
    if temperature == 0:
        return greedy(logits)
    check_shape(logits)
    rows = logits.shape[0]
    rngs = _one_per_row(rngs, rows, temperature)
    if _kernel_takes(logits):
        from kvlib.kernels.sample import sample_tokens

        bits = [int(rng.random() * 2.0**64) for rng in rngs]
        return sample_tokens(logits, temperature, top_k, top_p, bits=np.array(bits, np.uint64))
    p = probabilities(logits, temperature, top_k, top_p)
    # Inverse transform: the first token whose cumulative probability passes a uniform draw.
    tokens = []
    for row, rng in zip(np.cumsum(p, axis=1), rngs, strict=True):
        tokens.append(int(np.searchsorted(row, rng.random() * row[-1], side="right")))
    return tokens


def rng_at(seed: int, position: int, stream: int = 0) -> np.random.Generator:
    """Return the generator that draws the token at one position of a text.

    position   the number of tokens before it, prompt included
    stream     0 draws tokens. Other numbers give other streams (PCG64.jumped), for draws at the
               same position that must not depend on each other, such as a guess and its verdict.

    Its first number is the one at this position in the stream of PCG64(seed), whatever the other
    requests of the batch, chunks, preemptions, and wherever the prompt ends.

    >>> bool(rng_at(7, 4).random() == np.random.Generator(np.random.PCG64(7)).random(5)[4])
    True
    """
    bits = np.random.PCG64(check_seed("seed", seed))
    if stream:
        bits = bits.jumped(check_integer("stream", stream, 0))
    bits.advance(check_integer("position", position, 0))
    return np.random.Generator(bits)


def _one_per_row(rngs: Any, rows: int, temperature: float) -> list[np.random.Generator]:
    """Return the generators of the rows; ValueError or TypeError if there are none for each."""
    if rngs is None:
        raise ValueError(
            f"a draw at temperature {temperature} needs rngs, a generator that is kept from call "
            "to call: rng = np.random.default_rng(0), then rngs=rng"
        )
    generators = list(rngs) if isinstance(rngs, list | tuple) else [rngs] * rows
    wrong = [rng for rng in generators if not hasattr(rng, "random") or isinstance(rng, type)]
    if wrong:
        raise TypeError(f"rngs must be generators of np.random, got {describe(wrong[0])}")
    if len(generators) != rows:
        raise ValueError(f"one generator a row needed: {rows} rows, got {len(generators)}")
    return generators


def _kernel_takes(logits: Array) -> bool:
    """Whether the draw can stay on a device: CuPy's own arrays, of a type and size kernels know."""
    if type(logits).__module__.partition(".")[0] != "cupy" or logits.shape[1] > 1 << 18:
        return False
    aligned = logits.flags.c_contiguous and logits.data.ptr % 16 == 0
    return aligned and logits.shape[0] <= 65535 and logits.dtype in (np.float32, np.float16)
