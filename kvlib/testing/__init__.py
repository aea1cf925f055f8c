"""kvlib's own tests for your cache, codec, retention rule or scheduler, in one call.

    from kvlib import testing

    testing.check_cache(lambda layers: MyCache(layers, max_seqs=4, max_seq_len=40))
    testing.check_codec(my_codec)
    testing.check_retention(MyRule(4, 60))
    testing.check_scheduler(lambda model, cache: MyScheduler(model, cache))

Each returns a `Trial`. Its repr says what was compared and what was not covered, or the first
schedule that failed and how to play it again with `replay`.

>>> from kvlib import DenseCache
>>> bool(check_cache(lambda layers: DenseCache(layers, 4, 40), schedules=2))
True
"""

from kvlib.testing.check import (
    Trial,
    check_cache,
    check_codec,
    check_retention,
    check_scheduler,
    replay,
)
from kvlib.testing.schedule import Schedule, Terms, seeded

__all__ = [
    "Schedule",
    "Terms",
    "Trial",
    "check_cache",
    "check_codec",
    "check_retention",
    "check_scheduler",
    "replay",
    "seeded",
]
