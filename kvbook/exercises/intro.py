"""The warm-up of the opening page: how many times is one key computed when nothing is cached?"""

from kvbook.exercises.checker import Checker, Draws


def times_computed(position: int, steps: int) -> int:
    """times_computed(position, steps): step t = 1 ... steps computes the keys of 0 ... t - 1."""
    return max(0, steps - position)


check_times_computed = Checker(
    times_computed,
    stages={
        "key 3 is computed 47 times in 50 steps": [(3, 50)],
        "the first token's key is computed in every step, the last one's once": [(0, 50), (49, 50)],
        "a key whose token has not come is not computed": [(9, 4)],
        "ten steps compute 1 + 2 + ... + 10 = 55 keys, to keep ten": Draws(
            lambda rng: [*((i, 10) for i in range(10)), *rng.integers(0, 90, (8, 2)).tolist()]
        ),
    },
    mistakes={
        "in steps 1, 2 and 3 there is no token at position 3 yet. Positions count from 0, so step "
        "4 is the first that sees it": "max(0, steps - position) → steps",
        "the first step that computes key 3 is step 4, the last is step 50, and both count": [
            "steps - position) → steps - position - 1)",
            "steps - position) → steps - position + 1)",
        ],
        "a key whose token has not come is computed 0 times": [
            "max(0, steps - position) → steps - position",
            "max(0, steps - position) → abs(steps - position)",
            "max(0, steps - position) → max(1, steps - position)",
        ],
        "this is right for position 3 alone: use `position`": (
            "max(0, steps - position) → max(0, steps - 3)"
        ),
        "this counts the keys of all positions": lambda position, steps: steps * (steps + 1) // 2,
    },
)
