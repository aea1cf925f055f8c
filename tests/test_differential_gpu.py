"""The differential test on a graphics card (make gpu); needs neither hypothesis nor .venv."""

import importlib.util

import pytest
from caches import CACHES
from schedules import Schedule, seeded

pytestmark = pytest.mark.gpu


@pytest.fixture
def cupy():
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    import array_api_compat.cupy as cp

    try:
        cp.cuda.runtime.getDeviceCount()
    except cp.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"CuPy finds no CUDA device: {error}")
    return cp


@pytest.mark.parametrize("name", CACHES)
def test_any_schedule_equals_the_oracle(name, cupy):
    for seed in range(200, 212):
        Schedule(name, seeded(seed), cupy).play(20)
