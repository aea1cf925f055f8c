"""The stand-in for CuPy: what it refuses, what it counts, and that CuPy has all of it."""

import tracemalloc
import types

import array_api_compat
import numpy as np
import pytest
from device_double import _cupy, copies, ndarray, xp

from kvlib import arrays
from kvlib.arrays import default_namespace, is_numpy, namespace, nbytes, to_numpy


@pytest.fixture(autouse=True)
def fresh():
    copies.reset()


def on_device(values):
    return xp.asarray(np.asarray(values, np.float32))


HOST = np.ones((2, 2), np.float32)
REFUSED = {
    "added to a NumPy array": lambda x: x + HOST, "a NumPy array added to it": lambda x: HOST + x,
    "multiplied in place": lambda x: x.__imul__(HOST),
    "a product": lambda x: xp.matmul(x, HOST),
    "a NumPy array in a slice": lambda x: x.__setitem__(slice(None), HOST),
    "a list in a slice": lambda x: x.__setitem__(0, [1.0, 2.0]),
    "joined with a NumPy array": lambda x: xp.concat([x, HOST]),
    "np.asarray": np.asarray,
    "np.array of several": lambda x: np.array([x, x]),
    "put into a NumPy array": lambda x: HOST.copy().__setitem__(slice(None), x),
    "an argument that only NumPy has": lambda x: xp.take(x, xp.arange(2), axis=0, mode="clip"),
    "an index that is no index": lambda x: range(x[0, 0]),
    "a comparison with NumPy": lambda x: xp.where(x > 0, x, HOST),
}


@pytest.mark.parametrize("how", REFUSED)
def test_numpy_is_refused(how):
    with pytest.raises(TypeError):
        REFUSED[how](on_device(HOST))
    assert copies.to_device == 1 and copies.to_host == 0  # the making of it, and no more


COUNTED = {
    "get": lambda x: x.get(), "item": lambda x: x[0, 0].item(), "tolist": lambda x: x.tolist(),
    "float": lambda x: float(x[0, 0]), "int": lambda x: int(x[0, 0]),
    "bool": lambda x: bool((x > 0).all()), "if": lambda x: 1 if x[0, 0] else 0,
    "max of Python": lambda x: max(x[0]),  # one comparison of two numbers
    "printing": str, "formatting": lambda x: f"{x[0, 0]:}", "a mask": lambda x: x[x > 0],
    "to_numpy": to_numpy,
}


@pytest.mark.parametrize("how", COUNTED)
def test_what_comes_to_the_host_is_counted(how):
    COUNTED[how](on_device(HOST))
    assert copies.to_host == 1 and copies.to_device == 1


def test_clip_waits_twice_for_a_bound_as_array_api_compat_has_it():
    xp.clip(on_device(HOST), 0.0, 0.5)
    assert copies.to_host == 4
    copies.reset()
    x = on_device([-2.0, np.nan, 0.5, 9.0])
    bounded = arrays.clipped(xp, x, -1.0, 1.0)
    assert copies.to_host == 0
    np.testing.assert_array_equal(bounded.get(), np.clip(x.get(), -1, 1))


def test_what_goes_to_the_device_is_counted():
    xp.asarray(3.0)
    xp.full((2, 2), 3.0) * np.float32(2) + 1
    xp.zeros((0, 3))
    assert copies.to_device == 0  # numbers travel with a launch
    x = xp.asarray([1, 2, 3])
    y = x[[0, 2]] + x[np.asarray([1, 1])]
    assert copies.to_device == 3 and y.tolist() == [3, 5]
    x[xp.asarray([0, 2])] = xp.asarray([7, 8])  # the index and the values
    assert copies.to_device == 5 and x.tolist() == [7, 2, 8]


def test_numbers_taken_out_stay_arrays():
    x = on_device([[1.0, 2.0]])
    for number in (x[0, 1], x.max(), xp.sum(x), next(iter(x))[1], np.exp(x)[0, 0]):
        assert type(number) is ndarray and number.shape == ()
    x[0, 1][...] = 5.0  # a view, as with CuPy
    assert copies.to_host == 0 and x.tolist() == [[1.0, 5.0]]


def test_its_memory_is_not_traced():
    x = on_device(HOST)
    tracemalloc.start()
    try:
        kept = [xp.broadcast_to(x[0, 0], (1 << 18,)) + i for i in range(4)]
        assert tracemalloc.get_traced_memory()[1] < 1 << 18
        copy = kept[0].get()
        assert tracemalloc.get_traced_memory()[0] > copy.nbytes
    finally:
        tracemalloc.stop()


def test_kvlib_takes_it_for_a_library():
    x = on_device(HOST)
    assert array_api_compat.array_namespace(x) is xp and namespace(x, x) is xp
    assert not is_numpy(xp) and nbytes(x) == 16
    with pytest.raises(TypeError, match="one library needed, got device_array.ndarray, numpy"):
        namespace(x, HOST)


def test_installed_it_is_the_library_at_hand(device_at_hand):
    from kvlib import DenseCache, LayerSpec

    assert arrays.default_namespace() is device_at_hand is xp
    assert DenseCache([LayerSpec(1, 4)], 1, 4).xp is xp


def test_and_only_for_so_long():
    assert default_namespace() is np


def test_the_real_cupy_has_all_of_it():
    if (cupy := _cupy) is None:
        pytest.skip("CuPy is not installed, or has no folder for what it compiles")
    ours = {name for name in vars(ndarray) if not name.startswith("_")}
    special = {name for name in vars(ndarray) if name.startswith("__")}

    class Plain:  # what Python itself gives a class, which grows from version to version
        __slots__ = ()

    python = {"__init__", "__hash__", "__annotations__", *vars(Plain)}
    assert ours <= set(dir(cupy.ndarray))
    assert special - set(dir(cupy.ndarray)) - python <= {"__array_namespace__"}
    names = set(vars(xp)) - set(vars(types.ModuleType("plain")))
    assert {name for name in names if not hasattr(cupy, name)} == set()
    assert not {"__index__", "__contains__"} & set(dir(cupy.ndarray))  # nor has the double
