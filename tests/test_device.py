"""kvlib on the stand-in for CuPy: any cache, whole models, no crossing of the border unasked."""

import device_array
import device_copies
import numpy as np
import pytest
from caches import CACHES
from device_double import copies, ndarray, xp
from models import KINDS, decoder, text
from schedules import Schedule, close, seeded

from kvlib import BlockPool, Meter, PagedCache, generate, load_reference_model, machine
from kvlib.arrays import to_numpy
from kvlib.caches import ExpectedAttention, Quest, Scored, run_cascade
from kvlib.costs import BytesPerSecond
from kvlib.machine import bandwidth_by_size, measure_machine, memory_sized
from kvlib.model import rope

pytestmark = pytest.mark.filterwarnings("error")


def counted() -> tuple[int, int]:
    found = copies.to_host, copies.to_device
    copies.reset()
    return found


@pytest.mark.untraced
@pytest.mark.parametrize("name", CACHES)
def test_any_schedule_equals_the_oracle(name, effort):
    for seed in effort.share("lives on the stand-in for a device", range(300, 304), usual=2):
        Schedule(name, seeded(seed), xp).play(20)


@pytest.mark.parametrize("kind", KINDS)
def test_decoder_and_generate(kind):
    host, device = decoder(kind), decoder(kind, xp=xp)
    logits = []
    for model in (host, device):
        cache = model.new_cache(2)
        cache.add("a")
        cache.add("b")
        tokens = text(1, 16)
        parts = [model.forward(tokens[:11], cache, cache.plan(["a", "b"], [4, 7]), "all")]
        parts.append(model.forward(tokens[11:13], cache, cache.plan(["b", "a"], [1, 1])))
        ids = tokens[13:] if model is host else xp.asarray(tokens[13:])  # already on the device
        parts.append(model.forward(ids, cache, cache.plan(["a"], [3])))
        logits.append(np.concatenate([to_numpy(p) for p in parts]))
    close(logits[1], logits[0], "logits", 1e-5)
    prompts = [text(2, 5), text(3, 9)]
    for settings in ({}, {"temperature": 0.9, "top_k": 7, "top_p": 0.9}, {"prefill_chunk": 3}):
        settings["max_new_tokens"] = 8
        assert generate(device, prompts, **settings) == generate(host, prompts, **settings)


def test_the_reference_model_goes_where_the_library_at_hand_is(device_at_hand):
    model = load_reference_model()
    assert model.xp is xp and type(model.weights["embed.weight"]) is ndarray
    new = generate(model, ["def add(a, b):\n"], max_new_tokens=12)
    assert new == generate(load_reference_model(xp=np), ["def add(a, b):\n"], max_new_tokens=12)


def test_shared_blocks_are_read_once_there_too():
    model = decoder("llama", xp=xp)
    results = []
    for cls in (PagedCache, type("Cascade", (PagedCache,), {"run": run_cascade})):
        cache = cls(model.layer_specs, BlockPool(24, 4), xp=xp)
        cache.add("a")
        model.forward(text(1, 13), cache, cache.plan(["a"], [13], text(1, 13)))
        cache.fork("a", "b")
        counted()
        with Meter() as meter:
            logits = model.forward([1, 2], cache, cache.plan(["a", "b"], [1, 1], [1, 2]))
        assert counted() == (0, device_copies.TO_DEVICE)
        results.append((to_numpy(logits), meter.by_label["attention"].read))
    close(results[1][0], results[0][0], "logits", 1e-5)
    assert results[1][1] < results[0][1]


@pytest.mark.parametrize("codec", [None, "int8"])
def test_blocks_are_chosen_there_too(codec):
    prompt, results = text(1, 30), []
    for library in (np, xp):
        model = decoder("llama", xp=library)
        cache = PagedCache(
            model.layer_specs, BlockPool(40, 4), codec=codec, attention=Quest(8, 1), xp=library
        )
        cache.add("a")
        model.forward(prompt, cache, cache.plan(["a"], [30], prompt))
        cache.fork("a", "b")
        for _ in range(2):  # the second step fills no block
            step = cache.plan(["a", "b"], [1, 1], [1, 2])
            counted()
            results.append(to_numpy(model.forward([1, 2], cache, step)))
        assert library is np or counted() == (1, 3), "logits; tokens, positions, and blocks"
    for host, device in zip(results[:2], results[2:]):
        close(device, host, "logits", 1e-5)


def test_a_policy_turns_queries_back_there_too():
    model = decoder("llama", xp=xp)
    turns = rope.frequencies(model.config.rope, model.config.head_dim)
    rule, kept = Scored(ExpectedAttention(turns, sinks=2), 8), []
    for library in (np, xp):
        model = decoder("llama", xp=library)
        cache = PagedCache(model.layer_specs, BlockPool(40, 4), retention=rule, xp=library)
        cache.add("a")
        for tokens in (text(1, 14), [1], [2], [3]):
            model.forward(tokens, cache, cache.plan(["a"], [len(tokens)]))
        kept.append([to_numpy(cache.read(i, "a")[2]).tolist() for i in range(len(cache.layers))])
    assert kept[0] == kept[1] and len(kept[0][0][0]) == 9


@pytest.mark.parametrize("name", device_copies.CACHES)
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.8}], ids=["greedy", "sampled"])
def test_a_decode_step_brings_back_the_tokens_and_nothing_else(name, settings):
    needed = device_copies.TO_HOST, device_copies.TO_DEVICE - ("blocks" not in name)
    for num_layers in (1, 3):
        found = device_copies.copies_of_steps(name, num_layers, xp, counted, **settings)
        assert len(found) == device_copies.STEPS - 1
        assert set(found) == {needed}, f"{num_layers} layers"


def busy():
    """What waits for a device comes back with a copy, and the stand-in counts those."""
    copies.reset()
    return lambda: copies.to_host == 0


@pytest.mark.parametrize("name", device_copies.CACHES)
def test_a_forward_pass_never_waits_for_the_host(name):
    assert not device_copies.waits(device_copies.forward_pass(name, xp)(), busy)
    assert copies.to_device <= 2, "positions, and blocks"


@pytest.mark.parametrize("how", device_copies.HIDDEN)
def test_a_hidden_copy_does_wait(how):
    x = xp.arange(8, dtype=xp.float32)
    assert device_copies.waits(lambda: device_copies.HIDDEN[how](xp, x), busy)


def test_logits_without_a_token_are_refused_by_name():
    from kvlib.serve import greedy

    logits = xp.asarray([[0.0, 1.0], [np.nan, 1.0]])
    with pytest.raises(ValueError, match="must be a finite number, got nan"):
        greedy(logits)
    counted()
    assert greedy(logits[:1, :]) == [1] and counted() == (1, 0)


def test_the_machine_is_measured_there():
    m = measure_machine(xp, nbytes=2**16, size=64, repeats=3)
    assert m.name == "a stand-in for a device" and m.threads == 0
    assert m.library == f"CuPy {device_array.__version__}"
    assert set(m.ways) == {"matvec", "matvec, wide", "dot", "sum", "copy"}
    assert m.bandwidth == max(m.ways.values()) and isinstance(m.bandwidth, BytesPerSecond)
    assert set(bandwidth_by_size([8192, 2**16], xp, repeats=3)) == {8192, 2**16}
    assert memory_sized(xp) == machine.ON_A_DEVICE


def test_the_device_is_waited_for(monkeypatch):
    waits = []
    monkeypatch.setattr(machine, "_wait", lambda library: lambda: waits.append(library))
    monkeypatch.setattr(machine, "memory_sized", lambda library: 2**16)
    copies.reset()
    measure_machine(xp, size=8, repeats=3)
    # five ways to read and two products, in six rounds each and once untimed
    assert len(waits) == 1 + 5 * 6 + 1 + 2 * 6 and copies.to_host == 0
