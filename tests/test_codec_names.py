"""Codecs by name: what each name means, here and in kvlib.costs, and what is refused."""

import numpy as np
import pytest
from caches import CODECS as TESTED

from kvlib import BlockPool, LayerSpec, PagedCache, QuantizedCache, costs
from kvlib.codecs import NAMES, Codec, Fp8, Int8, bfloat16, codec, fp8, int8, kivi
from kvlib.codecs.names import REGISTRY

SPELLED = {name: found for first, found, others in REGISTRY for name in (first, *others)}
LAYERS = [LayerSpec(2, 64)]


def rows(codec):
    return QuantizedCache(LAYERS, codec, 1, 64, xp=np)


def blocks(codec):
    return PagedCache(LAYERS, BlockPool(2, 32), codec=codec, xp=np)


@pytest.mark.parametrize("make", [rows, blocks])
@pytest.mark.parametrize("name", SPELLED)
def test_a_cache_takes_a_codec_by_its_name(make, name):
    by_name, by_object = make(name), make(SPELLED[name])
    assert by_name.codec is SPELLED[name]
    x = np.random.default_rng(0).standard_normal((40, 2, 64)).astype(np.float32)
    for cache in (by_name, by_object):
        cache.add("a")
        cache.append(0, x, -x, cache.plan(["a"], [40]))
    assert by_name.memory() == by_object.memory()
    assert all((a == b).all() for a, b in zip(by_name.read(0, "a"), by_object.read(0, "a")))


@pytest.mark.parametrize("given", ["INT8", " int 8", "Int-8", "int_8", np.str_("int8")])
def test_case_and_spaces_do_not_matter(given):
    assert codec(given) is NAMES["int8"] and given in NAMES


def test_names_are_those_of_the_calls():
    for name, found in (
        ("int8", int8()), ("kivi4", kivi(4)), ("kivi2", kivi(2)), ("fp8", fp8()),
        ("fp8_e5m2", fp8("e5m2")), ("bf16", bfloat16()),
    ):
        assert (repr(codec(name)), codec(name).made_by) == (repr(found), found.made_by)
    mine = Codec("mine", Int8(), Fp8("e4m3"))
    assert codec(mine) is mine


def test_what_a_codec_is_called_finds_it():
    """`codec.name`, which printouts show, is a name too."""
    for found in NAMES.values():
        assert codec(found.name) is found


def test_the_registry_is_a_mapping_that_notebooks_complete():
    assert list(NAMES) == [name for name, _, _ in REGISTRY] == NAMES._ipython_key_completions_()
    assert len(NAMES) == len(REGISTRY) and "int9" not in NAMES
    assert len({"".join(n for n in name if n.isalnum()) for name in SPELLED}) == len(SPELLED)
    with pytest.raises(KeyError):
        NAMES["int9"]


@pytest.mark.parametrize("known", costs.CODECS.values(), ids=lambda c: c.name)
def test_one_name_is_one_codec_here_and_in_costs(known):
    for name in (known.name, *known.aliases):
        if known.name in ("float32", "float16"):
            assert np.dtype(known.name).itemsize * 8 == known.bits
            with pytest.raises(ValueError, match=f"no codec .* dtype=xp.{known.name}"):
                codec(name)
            continue
        found = codec(name)
        group = known.group or 128
        for part in (found.keys, found.values):
            fields = part.fields(128, np, np.float32).values()
            bits = {True: 0.0, False: 0.0}  # of a number, in payload and in metadata
            for field in fields:
                size = np.prod(field.shape) * np.dtype(field.dtype).itemsize * 8
                bits[field.payload] += size / field.per / 128
            assert bits == {True: known.bits, False: known.scale_bits / group}, name
        assert found.residual == known.residual and found.group in (1, known.group), name


@pytest.mark.parametrize("given, words", [
    ("int9", "unknown codec 'int9'; did you mean int8 or"),
    ("fp8e4", "did you mean fp8"), ("kivi", "did you mean int4 or int2"),
    ("bfloat", "did you mean bfloat16 or"),
    ("q4_0", f"there are plain, bfloat16, .*{', '.join(list(NAMES)[-2:])}$"),
    ("", "unknown codec ''; there are plain"),
    ("half", r"'half' is no codec .* leave codec out and give dtype=xp\.float16"),
    ("float32", r"leave codec out and give dtype=xp\.float32"),
])
@pytest.mark.parametrize("make", [codec, rows, blocks])
def test_a_name_that_no_codec_has(make, given, words):
    with pytest.raises(ValueError, match=words) as said:
        make(given)
    assert not isinstance(said.value, KeyError) and "\n" not in str(said.value)


@pytest.mark.parametrize("given", [8, 4.0, Int8(), int8, ["int8"], b"int8"])
@pytest.mark.parametrize("make", [codec, rows, blocks])
def test_what_is_neither_a_codec_nor_a_name(make, given):
    with pytest.raises(TypeError, match="a Codec .* or the name of one, such as 'int8', got an? "):
        make(given)


def test_a_refused_name_leaves_the_pool_free():
    pool = BlockPool(2, 32)
    with pytest.raises(ValueError, match="did you mean int8"):
        PagedCache(LAYERS, pool, codec="int88", xp=np)
    assert PagedCache(LAYERS, pool, codec="int8", xp=np).codec is NAMES["int8"]


def test_a_name_that_the_blocks_are_too_small_for():
    with pytest.raises(ValueError, match=r"multiple of the 32 tokens that kivi\(bits=4, group=32"):
        PagedCache(LAYERS, BlockPool(4, 16), codec="int4", xp=np)


def test_whatever_has_a_name_is_in_the_differential_test():
    """A codec of the registry that no random life plays would be tested by nobody."""
    played = {type(part) for c in TESTED for part in (c.keys, c.values)}
    for name, found in NAMES.items():
        parts = {type(found.keys), type(found.values)}
        assert found.plain or parts <= played, f"{name} is missing in CODECS of tests/caches.py"
