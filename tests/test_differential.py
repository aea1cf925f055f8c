"""The one differential test: any cache, any life, against float64 attention over everything."""

import array_api_strict
import numpy as np
import pytest
from caches import CACHES, CODECS, CODED, ON_TERMS, paged
from effort import number
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import Schedule, seeded

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def counted(monkeypatch, record_property):
    """Records how many schedules ran to their end, for the summary that make test prints."""
    play, played = Schedule.play, []

    def counting(self, steps):
        play(self, steps)
        played.append(steps)

    monkeypatch.setattr(Schedule, "play", counting)
    yield
    record_property("schedules", len(played))


@pytest.mark.untraced
@pytest.mark.parametrize("name", [*CACHES, *ON_TERMS])
def test_any_schedule_equals_the_oracle(name, effort):
    most = 20 if name in CODED else 60
    examples = number(quick=3, usual=most // 2, whole=most)
    effort.ran("lives that hypothesis draws", examples, most)

    @settings(max_examples=examples)
    @given(st.data())
    def check(data):
        def choose(low, high):
            return data.draw(st.integers(low, high))

        Schedule(name, choose, np).play(choose(5, 20))

    check()


@pytest.mark.untraced
@pytest.mark.parametrize("name", [*CACHES, *ON_TERMS])
def test_long_schedules(name, effort):
    for seed in effort.share("long lives", range(20), usual=8):
        Schedule(name, seeded(seed), np).play(40)


@pytest.mark.untraced
@pytest.mark.parametrize("name", [*CACHES, *ON_TERMS])
def test_under_the_array_api_standard_alone(name, effort):
    """All of them each time: what only one life does wrong here, no other test would notice."""
    for seed in effort.share("lives under the standard alone", range(100, 112), usual=12):
        Schedule(name, seeded(seed), array_api_strict).play(12)


@pytest.mark.untraced
@pytest.mark.parametrize("block_size", [8, 16, 40, 64, 128])
@pytest.mark.parametrize("codec", CODECS, ids=lambda c: f"{c.name}, residual {c.residual}")
def test_every_codec_in_blocks_of_every_size(codec, block_size, monkeypatch, effort):
    name = f"{codec.name} in blocks"
    monkeypatch.setitem(CACHES, name, paged(block_size, codec=codec))
    for seed in effort.share("lives of a codec in blocks", range(200, 204), usual=2):
        Schedule(name, seeded(seed), np).play(20)
