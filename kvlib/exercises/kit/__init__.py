"""A checker kit: the book's own tests for a cache, a codec or a scheduler of yours, in one call.

    from kvlib.exercises import kit

    kit.check_cache(lambda layers: MyCache(layers, max_seqs=4, max_seq_len=40))
    kit.check_scheduler(lambda model, cache: MyScheduler(model, cache))

Each returns a `Trial`, whose repr says what was proved, or the first schedule that failed and how
to play it again. A codec is checked inside a cache: `QuantizedCache(layers, my_codec, 4, 40)`.
"""

from kvlib.exercises.kit.check import check_cache, replay, seeded
from kvlib.exercises.kit.schedule import Schedule, Terms
from kvlib.exercises.kit.serving import check_scheduler
from kvlib.exercises.kit.trial import Trial

__all__ = ["Schedule", "Terms", "Trial", "check_cache", "check_scheduler", "replay", "seeded"]
