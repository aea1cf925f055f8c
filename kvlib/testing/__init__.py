"""kvlib's own tests for your cache, codec or scheduler, in one call.

    from kvlib import testing

    testing.check_cache(lambda layers: MyCache(layers, max_seqs=4, max_seq_len=40))
    testing.check_scheduler(lambda model, cache: MyScheduler(model, cache))

Each returns a `Trial`, whose repr says what was proved, or the first schedule that failed and how
to play it again. A codec is checked inside a cache: `QuantizedCache(layers, my_codec, 4, 40)`.
"""

from kvlib.testing.check import check_cache, replay, seeded
from kvlib.testing.schedule import Schedule, Terms
from kvlib.testing.serving import check_scheduler
from kvlib.testing.trial import Trial

__all__ = ["Schedule", "Terms", "Trial", "check_cache", "check_scheduler", "replay", "seeded"]
