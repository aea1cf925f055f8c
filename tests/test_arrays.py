"""The array library at hand, and the helpers that the standard lacks."""

import array_api_strict as strict
import numpy as np
import pytest

from kvlib.arrays import default_namespace, is_numpy, itemsize, namespace, nbytes, to_numpy


def test_the_namespace_of_arrays():
    x = np.zeros(3, np.float32)
    assert namespace(x) is np and namespace(x, x, x) is np and is_numpy(namespace(x))
    assert namespace(strict.zeros(3)) is strict and not is_numpy(strict)
    assert namespace(strict.zeros(3)) is strict  # remembered


def test_a_memory_mapped_file_is_numpy_too(tmp_path):
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4,))
    assert namespace(mapped) is np and namespace(mapped, np.zeros(3)) is np


@pytest.mark.parametrize("given, words", [
    ((), "one library needed, got none"),
    ((np.zeros(2), strict.zeros(2)), "one library needed, got array_api_strict.Array, numpy"),
    (([1.0],), "arrays needed, got a list: use np.asarray"),
    ((1.0,), "arrays needed, got a float"), ((np.zeros(2), None), "NoneType"),
])
def test_no_namespace(given, words):
    with pytest.raises(TypeError, match=words):
        namespace(*given)


def test_backend_by_environment(monkeypatch):
    monkeypatch.setenv("KVLIB_BACKEND", "numpy")
    assert default_namespace() is np
    monkeypatch.setenv("KVLIB_BACKEND", "torch")
    with pytest.raises(ValueError, match="KVLIB_BACKEND must be 'numpy' or 'cupy', got 'torch'"):
        default_namespace()


def test_to_numpy():
    x = np.arange(3.0)
    assert to_numpy(x) is x
    y = to_numpy(strict.asarray([1.0, 2.0]))
    assert type(y) is np.ndarray and y.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("xp", [np, strict])
def test_sizes_in_bytes(xp):
    sizes = {"float32": 4, "float64": 8, "int64": 8, "int8": 1, "uint16": 2, "bool": 1}
    for name, size in sizes.items():
        dtype = getattr(xp, name)
        assert itemsize(xp, dtype) == size
        assert nbytes(xp.zeros((3, 5), dtype=dtype)) == 15 * size
    assert nbytes(np.zeros((2, 2), np.float16)) == 8
    assert nbytes(xp.zeros((0, 5))) == 0
