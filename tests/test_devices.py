"""What a missing or broken CUDA is told to install: each cause in its own words."""

import importlib
import os
import sys
import types

import numpy as np
import pytest
from repository import run

from kvlib import arrays, devices
from kvlib.arrays import default_namespace


class CudaError(RuntimeError):
    """As CuPy's CUDARuntimeError: the number is its status."""

    def __init__(self, status, words):
        super().__init__(words)
        self.status = status


def failing(error):
    def fail(*_):
        raise error

    return fail


@pytest.fixture
def cupy(monkeypatch):
    """A CuPy in which everything is found; each test takes one thing away."""
    runtime = types.SimpleNamespace(driverGetVersion=lambda: 13000, getDeviceCount=lambda: 1)
    nvrtc = types.SimpleNamespace(getVersion=lambda: (13, 0))
    module = types.ModuleType("cupy")
    module.cuda = types.SimpleNamespace(runtime=runtime, nvrtc=nvrtc)
    compat = types.ModuleType("array_api_compat.cupy")
    modules = {
        "cupy": module,
        "cupy_backends.cuda.libs.cublas": types.ModuleType("cublas"),
        "array_api_compat.cupy": compat,
    }
    for name, one in modules.items():
        monkeypatch.setitem(sys.modules, name, one)
    monkeypatch.setattr("array_api_compat.cupy", compat, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    arrays._trouble.cache_clear()
    yield module
    arrays._trouble.cache_clear()


CAUSES = {
    "no CuPy": (
        lambda cupy, patch: patch.setitem(sys.modules, "cupy", None),
        r'CuPy is not installed; install it with: pip install "cupy-cuda13x\[ctk\]"',
    ),
    "no home": (
        lambda cupy,
        patch: patch.setattr(
            devices, "import_module",
            failing(NotADirectoryError(20, "Not a directory", "/dev/null/home")),
        ), "CuPy cannot write its cache .*/dev/null/home.*; set CUPY_CACHE_DIR to a folder",
    ),
    "no driver": (
        lambda cupy, patch: patch.setattr(cupy.cuda.runtime, "driverGetVersion", lambda: 0),
        "has no NVIDIA driver; .* install the driver from https://www.nvidia.com/drivers",
    ),
    "old driver": (
        lambda cupy,
        patch: patch.setattr(
            cupy.cuda.runtime, "getDeviceCount", failing(CudaError(35, "insufficient")),
        ), r"driver is too old for this CuPy \(insufficient\); install a newer .*cupy-cuda12x",
    ),
    "no device": (
        lambda cupy, patch: patch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 0),
        "shows no device; look at nvidia-smi and at CUDA_VISIBLE_DEVICES",
    ),
    "no device, as an error": (
        lambda cupy,
        patch: patch.setattr(
            cupy.cuda.runtime, "getDeviceCount", failing(CudaError(100, "no device")),
        ), "shows no device; look at nvidia-smi and at CUDA_VISIBLE_DEVICES",
    ),
    "another error": (
        lambda cupy,
        patch: patch.setattr(
            cupy.cuda.runtime, "getDeviceCount", failing(CudaError(802, "not yet initialised")),
        ), "CUDA does not start: not yet initialised",
    ),
    "no compiler": (
        lambda cupy, patch: patch.setattr(
            cupy.cuda.nvrtc, "getVersion", failing(RuntimeError("No such file: libnvrtc.so.13\nx"))
        ),
        r"without CUDA\'s libraries \(No such file: libnvrtc.so.13\); install them with: pip "
        r'install "cupy-cuda13x\[ctk\]"',
    ),
    "no cuBLAS": (
        lambda cupy, patch: patch.setitem(sys.modules, "cupy_backends.cuda.libs.cublas", None),
        "without CUDA's libraries",
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_says_what_to_do(cause, cupy, monkeypatch):
    assert devices.trouble() == ""
    take_away, words = CAUSES[cause]
    take_away(cupy, monkeypatch)
    monkeypatch.setenv("KVLIB_BACKEND", "cupy")
    with pytest.raises(ImportError, match=f"KVLIB_BACKEND=cupy, but .*{words}"):
        default_namespace()


@pytest.mark.parametrize("error", [
    ImportError("libcudart.so.13: cannot open"), OSError("libcudart.so.13: cannot open"),
    ModuleNotFoundError(name="cuda"),
])
def test_a_cupy_that_cannot_be_imported(error, monkeypatch):
    monkeypatch.setattr(devices, "import_module", failing(error))
    assert "CuPy cannot be imported" in devices.trouble()
    assert 'install it anew: pip install "cupy-cuda13x[ctk]"' in devices.trouble()


def test_cupy_where_it_can_compute(cupy, monkeypatch):
    for wish, node in (("cupy", False), ("", True)):
        monkeypatch.setenv("KVLIB_BACKEND", wish)
        monkeypatch.setattr(devices, "node_exists", lambda node=node: node)
        assert default_namespace() is sys.modules["array_api_compat.cupy"]
    monkeypatch.setenv("KVLIB_BACKEND", "numpy")
    assert default_namespace() is np
    monkeypatch.setenv("KVLIB_BACKEND", "")
    monkeypatch.setattr(devices, "node_exists", lambda: False)
    assert default_namespace() is np  # no device node: CuPy is not even imported


def test_nobody_asked_for_cupy(cupy, monkeypatch):
    """A card that an installed CuPy cannot reach is worth a warning; a missing CuPy is not."""
    monkeypatch.delenv("KVLIB_BACKEND", raising=False)
    monkeypatch.setattr(devices, "node_exists", lambda: True)
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 0)
    with pytest.warns(RuntimeWarning, match="kvlib computes with NumPy: .* shows no device"):
        assert default_namespace() is np
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert default_namespace() is np


def test_what_the_real_cupy_says_of_a_machine_without_a_driver(tmp_path):
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    code = "from kvlib import devices; print(devices.trouble())"
    environment = {**os.environ, "CUPY_CACHE_DIR": str(tmp_path)}  # there may be no home
    said = run(sys.executable, "-c", code, env=environment)
    if "has no NVIDIA driver" not in said and devices.node_exists():
        pytest.skip("there is a driver here")
    assert "has no NVIDIA driver" in said
