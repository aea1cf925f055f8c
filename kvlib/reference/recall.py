"""The recall task: names bound to short strings, asked for again later.

A prompt is ordinary-looking Python. Somewhere it says ``mq = 'tfre'``; other names are bound
around it, other code between them, and the prompt ends with ``mq = '``: nothing but the context
can tell the continuation. The reference model is trained on such bindings
(tools/reference/rows.py) and measured with `recall_prompt`.
"""

import random
from collections.abc import Sequence
from functools import cache
from importlib import resources

from kvlib.arguments import check_integer

VALUE_LENGTH = 4
LEAST_DISTANCE, MOST_BYTES = 16, 2**24
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_RESERVED = frozenset({"as", "if", "in", "is", "or"})


@cache
def sample_lines() -> tuple[bytes, ...]:
    """Lines (with their newline) of the frozen Python sample that ships with the model."""
    text = resources.files("kvlib.reference").joinpath("sample.py.txt").read_bytes()
    return tuple(line for line in text.splitlines(keepends=True) if line.strip())


def fresh_names(rng: random.Random, count: int, lengths: Sequence[int] = (2, 3)) -> list[str]:
    """``count`` different random lower-case names, each of one of the given lengths."""
    names: dict[str, None] = {}
    if sum(len(_LETTERS) ** n for n in set(lengths)) < 2 * count:
        raise ValueError(f"{count} different names of lengths {tuple(lengths)} are too many")
    while len(names) < count:
        name = "".join(rng.choices(_LETTERS, k=rng.choice(lengths)))
        if name not in _RESERVED:
            names[name] = None
    return list(names)


def fresh_value(rng: random.Random) -> str:
    """A random string of ``VALUE_LENGTH`` lower-case letters."""
    return "".join(rng.choices(_LETTERS, k=VALUE_LENGTH))


def binding(name: str, value: str) -> bytes:
    """One line that binds ``name``, such as ``b"mq = 'tfre'\\n"``."""
    return f"{name} = '{value}'\n".encode("ascii")


def recall_prompt(
    rng: random.Random,
    distance: int,
    names: int = 4,
    *,
    lead: int = 64,
    filler: Sequence[bytes] | None = None,
) -> tuple[bytes, bytes]:
    """A prompt, which ends with ``name = '``, and its answer, the value's ``VALUE_LENGTH`` bytes.

    distance  bytes from the first byte of the value where it is bound to the end of the prompt, 16
              to 2^24
    names     how many names are bound in the prompt, the asked one included
    lead      about how many bytes of other code come before the bindings
    filler    lines of code, each with its newline; the shipped sample if not given

    Raises ValueError for a distance outside this range, fewer than one name or too many.
    """
    distance = check_integer("distance", distance, LEAST_DISTANCE, MOST_BYTES)
    names = check_integer("names", names, 1)
    lead = check_integer("lead", lead, 0, MOST_BYTES)
    lines = sample_lines() if filler is None else filler
    asked, *others = fresh_names(rng, names)
    value = fresh_value(rng)
    bound = binding(asked, value)
    gap = distance - len(bound)
    before, between, room = [], [], gap
    for other in others:
        line = binding(other, fresh_value(rng))
        if rng.random() < 0.5 and len(line) <= room // 2:
            between.append(line)
            room -= len(line)
        else:
            before.append(line)
    head = _shuffle_in(rng, take(rng, lines, lead, exact=False), before)
    middle = _shuffle_in(rng, take(rng, lines, room, exact=True), between)
    prompt = b"".join([*head, bound, *middle, f"{asked} = '".encode("ascii")])
    return prompt, value.encode("ascii")


def take(rng: random.Random, lines: Sequence[bytes], size: int, *, exact: bool) -> list[bytes]:
    """Neighbouring lines of ``size`` bytes together; if ``exact``, the last one is cut to fit."""
    taken: list[bytes] = []
    at = rng.randrange(len(lines))
    while size > 0:
        line = lines[at % len(lines)]
        if len(line) > size:
            if not exact:
                break
            line = line[: size - 1] + b"\n"
        taken.append(line)
        size -= len(line)
        at += 1
    return taken


def _shuffle_in(rng: random.Random, lines: list[bytes], extra: list[bytes]) -> list[bytes]:
    """``extra`` put at random positions between ``lines``, whose order is kept."""
    merged = list(lines)
    for line in extra:
        merged.insert(rng.randint(0, len(merged)), line)
    return merged
