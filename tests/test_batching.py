"""Who is fed how many tokens in a step: arithmetic on plain data, without a model or a cache."""

from collections.abc import Sequence
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlib.serve import Pending, schedule

Limits = dict[str, int | None]


@st.composite
def pending(draw: st.DrawFn) -> tuple[list[Pending], list[Pending]]:
    """Requests that run, of which some decode, and requests that wait."""
    running = [
        Pending(f"r{i}", 1 if decodes else draw(st.integers(1, 12)), decodes)
        for i, decodes in enumerate(draw(st.lists(st.booleans(), max_size=7)))
    ]
    waiting = [Pending(f"w{i}", n) for i, n in enumerate(draw(st.lists(st.integers(1, 12))))]
    return running, waiting


LIMIT = st.none() | st.integers(1, 20)
LIMITS = st.fixed_dictionaries({"budget": LIMIT, "prefill_chunk": LIMIT, "max_prefills": LIMIT})


def prompts(requests: Sequence[Pending]) -> list[Pending]:
    return [p for p in requests if not p.decoding]


def wanted(p: Pending, limits: Limits) -> int:
    """What a request takes if the budget allows it."""
    return 1 if p.decoding else min(p.left, limits["prefill_chunk"] or p.left)


@given(pending(), LIMITS)
def test_no_limit_is_passed(requests, limits: Limits) -> None:
    running, waiting = requests
    fed = schedule(running, waiting, **limits)
    assert limits["budget"] is None or sum(fed.values()) <= limits["budget"]
    for p in (*running, *waiting):
        assert 0 < fed.get(p.request, 1) <= wanted(p, limits)
    began = [p for p in waiting if p.request in fed]
    if began and limits["max_prefills"] is not None:
        assert len(prompts(running)) + len(began) <= limits["max_prefills"]


@given(pending(), LIMITS)
def test_each_decode_gets_its_token_before_any_prompt(requests, limits: Limits) -> None:
    running, waiting = requests
    fed = schedule(running, waiting, **limits)
    decodes = [p.request for p in running if p.decoding]
    assert [name for name in decodes if fed.get(name) == 1] == decodes[: limits["budget"]]
    if len(decodes) < (limits["budget"] or 1000) and (prompts(running) or waiting):
        first = (prompts(running) or waiting)[0]
        assert fed[first.request] >= 1, "the oldest prompt goes on, or the next one begins"


@given(pending(), LIMITS)
def test_the_order_is_kept(requests, limits: Limits) -> None:
    """The older prompt takes all it can before a later one gets a token, and nobody overtakes."""
    running, waiting = requests
    fed = schedule(running, waiting, **limits)
    assert list(fed) == [p.request for p in (*running, *waiting) if p.request in fed]
    takes = [fed.get(p.request, 0) == wanted(p, limits) for p in (*prompts(running), *waiting)]
    got = [p.request in fed for p in (*prompts(running), *waiting)]
    for i, gets in enumerate(got):
        assert not gets or all(takes[:i])


@given(pending(), LIMITS)
def test_nothing_is_left_that_somebody_could_take(requests, limits: Limits) -> None:
    running, waiting = requests
    fed = schedule(running, waiting, **limits)
    if limits["budget"] is None or sum(fed.values()) < limits["budget"]:
        assert all(fed.get(p.request) == wanted(p, limits) for p in running)
        began = [p for p in waiting if p.request in fed]
        reading = len(prompts(running)) + len(began)
        assert began == waiting or reading >= (limits["max_prefills"] or 1000)


@given(pending(), LIMITS)
def test_it_changes_nothing_and_looks_at_no_more_than_begin(requests, limits: Limits) -> None:
    running, waiting = requests
    before = list(running), list(waiting)
    fed = schedule(running, waiting, **limits)
    assert schedule(tuple(running), tuple(waiting), **limits) == fed
    assert (running, waiting) == before
    rest = iter(waiting)
    assert schedule(running, rest, **limits) == fed
    assert list(rest) == waiting[sum(p.request in fed for p in waiting) :]


@given(st.data(), LIMITS)
def test_a_day_feeds_every_token_once(data: st.DataObject, limits: Limits) -> None:
    """Requests of P tokens that get N come at any time; a day of nothing but `schedule`."""
    coming = data.draw(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 6)), max_size=8))
    queue: list[int] = []
    running: list[int] = []
    left, new, fed_in_all = {}, {}, dict.fromkeys(range(len(coming)), 0)
    arrived = steps = 0
    while arrived < len(coming) or queue or running:
        while arrived < len(coming) and (data.draw(st.booleans()) or not (queue or running)):
            left[arrived], new[arrived] = coming[arrived][0], 0
            queue.append(arrived)
            arrived += 1
        fed = schedule(
            [Pending(i, left[i], new[i] > 0) for i in running],
            [Pending(i, left[i]) for i in queue], **limits,
        )
        assert fed, "a step in which nobody gets on"
        began = [i for i in fed if i in queue]
        running, queue = running + began, queue[len(began) :]
        assert len(running) <= (limits["budget"] or 1000), "each of them will want a token"
        for i, n in fed.items():
            fed_in_all[i] += n
            left[i] -= n
            if left[i] == 0:
                new[i], left[i] = new[i] + 1, 1
        running = [i for i in running if new[i] < coming[i][1]]
        steps += 1
    assert [fed_in_all[i] for i in range(len(coming))] == [p + n - 1 for p, n in coming]
    assert steps <= sum(p + n for p, n in coming)


@pytest.mark.parametrize(("chunk", "steps"), [(None, 1), (1, 30), (7, 5), (10, 3), (64, 1)])
def test_how_many_steps_a_prompt_is_read_in(chunk: int | None, steps: int) -> None:
    left, count = 30, 0
    while left:
        left -= schedule([Pending("a", left)], prefill_chunk=chunk)["a"]
        count += 1
    assert count == steps


def decoding(*names: str) -> list[Pending]:
    return [Pending(name, 1, decoding=True) for name in names]


CASES = {
    "nobody": ([], [], {}, {}),
    "all of it": ([Pending("a", 9)], [Pending("b", 5)], {}, {"a": 9, "b": 5}),
    "one prompt at a time": ([Pending("a", 9)], [Pending("b", 5)], {"max_prefills": 1}, {"a": 9}),
    "the next one begins": (
        decoding("a", "b"), [Pending("c", 5), Pending("d", 5)], {"max_prefills": 1},
        {"a": 1, "b": 1, "c": 5},
    ),
    "a prompt between two decodes keeps its place": (
        [*decoding("a"), Pending("b", 9), *decoding("c")], [], {"budget": 4},
        {"a": 1, "b": 2, "c": 1},
    ),
    "what the first leaves": (
        [Pending("a", 3), Pending("b", 9)], [Pending("c", 9)], {"budget": 5}, {"a": 3, "b": 2},
    ),
    "chunks leave room for a third": (
        [Pending("a", 3), Pending("b", 9)], [Pending("c", 9)], {"budget": 5, "prefill_chunk": 2},
        {"a": 2, "b": 2, "c": 1},
    ),
    "decodes fill the budget": (
        decoding("a", "b"), [Pending("c", 9)], {"budget": 2}, {"a": 1, "b": 1},
    ),
    "more decodes than the budget": (decoding("a", "b", "c"), [], {"budget": 2}, {"a": 1, "b": 1}),
    "more prompts than may begin go on": (
        [Pending("a", 2), Pending("b", 2)], [Pending("c", 2)], {"max_prefills": 1},
        {"a": 2, "b": 2},
    ),
}


@pytest.mark.parametrize(("running", "waiting", "limits", "fed"), CASES.values(), ids=CASES)
def test_by_hand(running, waiting, limits: Limits, fed: dict[str, int]) -> None:
    found = schedule(running, waiting, **limits)
    assert found == fed and list(found) == list(fed)


def test_a_queue_without_an_end() -> None:
    """The waiting may be a generator that orders them as it is asked."""
    endless = (Pending(i, 3) for i in range(10**9))
    assert schedule(decoding("a"), endless, budget=8) == {"a": 1, 0: 3, 1: 3, 2: 1}
    assert next(islice(endless, 1)) == Pending(3, 3)


@pytest.mark.parametrize("decodes", [False, True])
def test_a_request_without_tokens_to_feed_is_refused(decodes: bool) -> None:
    with pytest.raises(ValueError, match="left must be an integer of at least 1, got 0, for req"):
        schedule([Pending("a", 0, decodes)])
