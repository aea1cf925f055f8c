"""Serve requests: prompts in, tokens out, on any cache.

In each step of a :class:`kvlib.Scheduler`, every decoding request gets a token and the prompts
advance, whole or in chunks, so that nobody waits for more tokens than the budget (Sarathi-Serve,
arXiv:2403.02310). When the cache is full, one request gives up its memory and is computed again
later (as in vLLM, arXiv:2309.06180). `schedule` decides how many tokens each request is fed,
policies decide which one begins next and which one gives way. :func:`kvlib.generate` is the same
scheduler in a loop.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each public name, once: see `kvlib.lazy`
    from kvlib.serve.budget import Pending as Pending
    from kvlib.serve.budget import schedule as schedule
    from kvlib.serve.distribution import check_settings as check_settings
    from kvlib.serve.distribution import greedy as greedy
    from kvlib.serve.distribution import probabilities as probabilities
    from kvlib.serve.editing import remove_span as remove_span
    from kvlib.serve.generation import generate as generate
    from kvlib.serve.generation import stream as stream
    from kvlib.serve.policies import fewest_lost as fewest_lost
    from kvlib.serve.policies import first_come as first_come
    from kvlib.serve.policies import shortest_first as shortest_first
    from kvlib.serve.policies import youngest as youngest
    from kvlib.serve.request import CANCELLED as CANCELLED
    from kvlib.serve.request import DECODING as DECODING
    from kvlib.serve.request import DONE as DONE
    from kvlib.serve.request import FAILED as FAILED
    from kvlib.serve.request import PREFILLING as PREFILLING
    from kvlib.serve.request import WAITING as WAITING
    from kvlib.serve.request import Event as Event
    from kvlib.serve.request import Request as Request
    from kvlib.serve.request import waits as waits
    from kvlib.serve.sampling import rng_at as rng_at
    from kvlib.serve.sampling import sample as sample
    from kvlib.serve.scheduler import Scheduler as Scheduler
else:
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)
