"""The right answers agree with kvlib and with definitions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvbook.exercises import latent, layernorm, roofline, sampling, speculative, windows
from kvbook.exercises.batched import pack
from kvbook.exercises.cached import tiny_model
from kvbook.exercises.checker import edited
from kvbook.exercises.chunked import online_update, read_in_chunks
from kvbook.exercises.hidden import redrawn
from kvbook.exercises.memory import DEEPSEEK, LLAMA, check_token_bytes, token_bytes
from kvlib.attention import attend
from kvlib.caches import DenseCache, LayerSpec
from kvlib.costs import GPUS, MODELS, decode
from kvlib.meter import Meter
from kvlib.model import Decoder
from kvlib.model.weights import random_weights
from kvlib.norms import rms_norm_backward, rms_norm_forward
from kvlib.speculation import accept

f32 = np.float32


@pytest.mark.parametrize(
    "config, spec",
    [(LLAMA, LayerSpec(8, 128)), (DEEPSEEK, LayerSpec(1, 576, 512, v_from_k=True))],
)
def test_bytes_of_live_caches(config: dict[str, Any], spec: LayerSpec) -> None:
    cache = DenseCache([spec] * config["num_hidden_layers"], 1, 3, dtype=np.float16)
    cache.add("a")
    cache.plan(["a"], [3])
    assert cache.memory().payload == 3 * token_bytes(config, 2)
    assert check_token_bytes(lambda *args: np.int64(token_bytes(*args)))


SHOWN = [
    words for words in roofline.FAULTS if words.startswith(("the input", "the values", "the peak"))
]


@pytest.mark.parametrize("left", [SHOWN, SHOWN[1:], SHOWN[::2], SHOWN[:2]])
def test_each_fault_of_the_shown_calculator_is_named(left: list[str]) -> None:
    suspect = edited(roofline.ceiling, tuple(roofline.FAULTS[words] for words in left))
    assert roofline.check_ceiling(suspect).finding.endswith(left[0])


def test_the_intensity_is_what_the_meter_counts() -> None:
    model = Decoder(roofline.ODD, random_weights(roofline.ODD, seed=5, xp=np))
    cache = model.new_cache(1, 40)
    cache.add("a")
    model.forward([1] * 39, cache, cache.plan(["a"], [39]))
    with Meter() as meter:
        model.forward([2], cache, cache.plan(["a"], [1]))
    count = meter.by_label["attention"]
    assert roofline.attention_intensity(roofline.ODD, 1, 40, 4) == pytest.approx(
        count.flops / count.read
    )


def test_the_floors_are_those_of_the_costs() -> None:
    work, model = decode(MODELS["llama-3.1-8b"], 16, 8192, shared=4096), MODELS["llama-3.1-8b"]
    assert roofline.LLAMA_FLOOR[:2] == (work.linear.bytes.value, model.kv_bytes_per_token().value)
    assert roofline.step_floor(*roofline.LLAMA_FLOOR) == pytest.approx(
        work.floor(GPUS["h100-sxm"]).seconds.value, rel=0.01
    )
    for key, config in (("llama-3.1-8b", roofline.LLAMA), ("qwen3-0.6b", roofline.QWEN)):
        said = decode(MODELS[key], 8, 8192).floor(GPUS["h100-sxm"]).tokens_per_second.value
        assert roofline.ceiling(config, roofline.SHEET, 8, 8192) == pytest.approx(said, rel=0.02)


def test_a_plan_has_the_same_integers() -> None:
    cache, prompts = DenseCache([LayerSpec(1, 2)], 3, 9, xp=np), [[5, 9, 2], [7], [1, 1, 4, 8, 3]]
    for i in range(3):
        cache.add(i)
    step, (_, positions, indptr) = cache.plan(range(3), [3, 1, 5]), pack(prompts)
    assert positions.tolist() == step.positions.tolist()
    assert indptr.tolist() == list(step.qo_indptr)


@pytest.mark.parametrize("p, c", [(24, 8), (10, 4), (5, 9)])
def test_a_meter_counts_as_many_keys(p: int, c: int) -> None:
    model = tiny_model()
    cache = model.new_cache(1, 64)
    cache.add(0)
    bounds, keys = read_in_chunks(p, c)
    with Meter() as meter:
        for n in np.diff(bounds)[:, 0].tolist():
            model.forward([1] * n, cache, cache.plan([0], [n]))
    a_token = sum(4 * s.num_kv_heads * (s.head_dim + s.v_dim) for s in model.layer_specs)
    assert meter.by_label["attention"].read == keys * a_token


def test_tiles_give_attention() -> None:
    q, k, v = np.random.default_rng(5).standard_normal((3, 20, 8)).astype(np.float32)
    s, pos = q @ k.T / np.float32(8**0.5), np.arange(20)
    s[pos[:, None] < pos] = -np.inf
    state: Any = np.full((20, 1), -np.inf), np.zeros((20, 1)), np.zeros((20, 8))
    for a in range(0, 20, 7):
        state = online_update(*state, s[:, a : a + 7], v[a : a + 7])
    whole: Any = attend(q[:, None], k[:, None], v[:, None], pos, pos)
    assert np.allclose(state[2] / state[1], whole[:, 0], atol=1e-5)


@pytest.mark.parametrize("at", [1, 25, 39])
def test_merged_parts_are_those_of_the_whole_row(at: int) -> None:
    x = np.random.default_rng(0).standard_normal(40) * 3
    parts = sampling.part_of(x[:at], 0, 5), sampling.part_of(x[at:], at, 5)
    whole = sampling.part_of(x, 0, 5)
    for got, needed in zip(sampling.merge_rows(*parts, 5), whole, strict=True):
        np.testing.assert_allclose(got, needed, rtol=1e-12)


def test_the_statistic_of_three_counts() -> None:
    statistic, degrees = sampling.chi_square(np.array([48, 35, 17]), np.array([0.5, 0.3, 0.2]))
    assert statistic == pytest.approx(4 / 50 + 25 / 30 + 9 / 20) and degrees == 2


def test_the_backward_pass() -> None:
    x, dy = np.random.default_rng(0).standard_normal((2, 6, 5))
    weight = np.arange(1.0, 6.0)
    saved = rms_norm_forward(x, weight, 1e-2)[1]
    got = layernorm.rms_backward(dy, saved.x_hat, saved.inv_std, weight)
    for mine, kvlibs in zip(got, rms_norm_backward(dy, saved), strict=True):
        assert np.allclose(mine, kvlibs)


def test_merged_moments() -> None:
    x = np.random.default_rng(1).standard_normal(40)
    n, mean, m2 = layernorm.merge_moments(
        *((len(y), y.mean(), y.var() * len(y)) for y in (x[:9], x[9:]))
    )
    assert np.allclose((n, mean, m2), (40, x.mean(), 40 * x.var()))


def test_it_counts_what_products_of_matrices_take() -> None:
    T, S, H, C, N, R, V = latent.SMALL[0]
    expanded = [(S, C, N), (S, C, V), (T, N, S), (T, R, S), (T, S, V)]
    absorbed = [(T, N, C), (T, C, S), (T, R, S), (T, S, C), (T, C, V)]
    counted = tuple(H * sum(map(np.prod, form)) for form in (expanded, absorbed))
    assert latent.multiplications(*latent.SMALL[0]) == counted


def judged_by(verdict: Callable[..., Any]) -> Callable[..., Any]:
    """An answer that keeps guesses while verdict(p row, q row, x, u) is true."""

    def answer(p: Any, q: Any, draft: Any, u: Any) -> Any:
        kept = [verdict(p[i], q[i], x, u[i]) for i, x in enumerate(draft)]
        return int(np.argmin([*kept, False]))

    return answer


@pytest.mark.parametrize("answer", [
    judged_by(lambda p, q, x, u: 1 - u < p[x] / q[x]),
    judged_by(lambda p, q, x, u: 1 - u <= p[x] / q[x]),
    judged_by(lambda p, q, x, u: np.log(u) < np.log(p[x]) - np.log(q[x])),
    judged_by(lambda p, q, x, u: not u >= min(1.0, p[x] / q[x])),
    judged_by(lambda p, q, x, u: u < f32(p[x]) / q[x]),
    lambda p, q, d, u: len(accept(p, d, q, u, np.full(len(d) + 1, 0.5))) - 1,
])
def test_right_chains(answer: Any) -> None:
    for draw in range(4):
        with redrawn(draw):
            report = speculative.check_accepted(answer)
        assert report.passed, report


def test_a_chain_must_not_change_its_rule_halfway() -> None:
    report = speculative.check_accepted(
        lambda p, q, d, u: speculative.accepted(p, q, d, u if len(d) % 2 else 1 - u)
    )
    assert "needed" in report.finding


@pytest.mark.parametrize(
    "parents", [speculative.EXAMPLE, (-1, -1, 0, 1, 2), (-1, 0, 1, 2, 0, 4, 1)]
)
def test_the_mask_and_the_positions_are_those_of_a_step(parents: tuple[int, ...]) -> None:
    cache = DenseCache([LayerSpec(1, 2)], 1, 20, xp=np)
    cache.add("a")
    x = np.zeros((4, 1, 2), np.float32)
    cache.append(0, x, x, cache.plan(["a"], [4]))
    step = cache.plan(["a"], [len(parents)], parents=[parents])
    mask, positions = speculative.tree_mask(parents, 4)
    assert (step.ancestors(0) == mask).all() and (step.positions == positions).all()


@pytest.mark.parametrize("budget", windows.BUDGETS)
def test_a_policy_wins_by_a_margin_that_no_processor_moves(budget: int) -> None:
    mine, rival = tuple(windows.my_policy(5, budget)), windows.equal_shares(5, budget)
    assert sum(windows.recalled(mine)) == 5 and sum(windows.recalled(rival)) == 0
    assert windows.bits_per_byte(mine) < 0.985 * windows.bits_per_byte(rival)
