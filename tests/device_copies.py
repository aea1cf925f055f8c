"""What crosses the border between host and device, and what waits for the device."""

from collections.abc import Callable
from typing import Any

from models import decoder, text

from kvlib import BlockPool, Cache, DenseCache, PagedCache, QuantizedCache, stream
from kvlib.codecs import fp8, int8, kivi

PROMPTS = [text(2, 9), text(3, 5)]
ROOM = 48  # tokens of a request
STEPS = 20
# A library that is not NumPy is sent the token ids, their positions and the block tables, once a
# step for all layers, and sends back the ids it has chosen.
TO_HOST, TO_DEVICE = 1, 3


def paged(block_size: int, codec: Any = None) -> Callable[..., Cache]:
    blocks = 2 * -(-ROOM // block_size)
    return lambda layers, xp: PagedCache(layers, BlockPool(blocks, block_size), codec=codec, xp=xp)


def rows(codec: Any) -> Callable[..., Cache]:
    return lambda layers, xp: QuantizedCache(layers, codec, 2, ROOM, xp=xp)


# Groups of 8 tokens fill up within the steps, so encoding is counted, too.
CACHES: dict[str, Callable[..., Cache]] = {
    "dense": lambda layers, xp: DenseCache(layers, 2, ROOM, xp=xp),
    "paged, blocks of 4": paged(4), "paged, blocks of 64": paged(64), "int8 rows": rows(int8()),
    "int8 blocks": paged(8, int8()), "int4 rows": rows(kivi(4, 8, 8)),
    "int4 blocks": paged(16, kivi(4, 8, 8)), "fp8 rows": rows(fp8()), "fp8 blocks": paged(4, fp8()),
}

# Each makes the host wait, whatever the device is doing.
HIDDEN: dict[str, Callable[[Any, Any], Any]] = {
    "the whole array": lambda xp, x: x.get(), "one number": lambda xp, x: float(x[3]),
    "a condition": lambda xp, x: bool((x > 0).all()),
    "a mask, whose hits are counted": lambda xp, x: x[x > 2],
    "where a condition holds": lambda xp, x: xp.nonzero(x > 2),
    "clip, which looks at masks": lambda xp, x: xp.clip(x, 0.0, 3.0),
}


def waits(run: Callable[[], Any], busy: Callable[[], Callable[[], bool]]) -> bool:
    """Whether `run` waits for the device; `busy` starts work, and returns whether it goes on."""
    at_work = busy()
    run()
    return not at_work()


def forward_pass(name: str, xp: Any) -> Callable[[], Callable[[], Any]]:
    """A function that plans one more token after 20, and returns what computes its logits."""
    model = decoder("llama", xp=xp)
    cache = CACHES[name](model.layer_specs, xp)
    cache.add("a")
    model.forward(text(1, 20), cache, cache.plan(["a"], [20]))
    ids = xp.asarray([7])

    def planned() -> Callable[[], Any]:
        cache.truncate("a", 20)
        step = cache.plan(["a"], [1])
        return lambda: model.forward(ids, cache, step)

    return planned


def copies_of_steps(name, num_layers, xp, count, **settings) -> list[tuple[int, int]]:
    """(to the host, to the device) of each decode step but the first, which allocates."""
    model = decoder("llama", xp=xp, num_hidden_layers=num_layers)
    cache = CACHES[name](model.layer_specs, xp)
    found = []
    count()
    for i, _ in enumerate(stream(model, PROMPTS, max_new_tokens=STEPS, cache=cache, **settings)):
        if i % len(PROMPTS) == len(PROMPTS) - 1:
            found.append(count())
    return found[1:]
