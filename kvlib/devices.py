"""Whether CuPy can compute on a device here, and if not, what is missing and what to do.

CuPy is imported only when asked for: that costs half a second.
"""

import os.path
from importlib import import_module
from typing import Any

PACKAGE = "cupy-cuda13x[ctk]"  # for CUDA 13 drivers (580 and later), with CUDA's own libraries
DRIVER_PAGE = "https://www.nvidia.com/drivers"
NO_DEVICE = 100  # cudaErrorNoDevice
OLD_DRIVER = 35  # cudaErrorInsufficientDriver
NODES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg")  # the last is Windows' in its Linux


def node_exists() -> bool:
    """Whether the system shows a device at all; a machine without one is spared the import."""
    return any(os.path.exists(node) for node in NODES)


def trouble() -> str:
    """Why CuPy cannot compute here, and what to do about it; "" where it can."""
    try:
        cupy = import_module("cupy")
        runtime = cupy.cuda.runtime
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            return _broken(error)
        return f'CuPy is not installed; install it with: pip install "{PACKAGE}"'
    except OSError as error:
        if error.filename is None:  # a library that cannot be opened
            return _broken(error)
        return (  # a user without a home, or with one that is read-only
            f"CuPy cannot write its cache of kernels ({_line(error)}); set CUPY_CACHE_DIR to a "
            "folder that you can write"
        )
    except Exception as error:  # a library that CuPy is linked to, or a wrong build of it
        return _broken(error)
    return _no_device(runtime) or _no_libraries(cupy)


def _no_device(runtime: Any) -> str:
    try:
        if runtime.driverGetVersion() == 0:
            return (
                "CuPy is installed, but this machine has no NVIDIA driver; with an NVIDIA card, "
                f"install the driver from {DRIVER_PAGE} (a container must be started with "
                "--gpus all)"
            )
        count = runtime.getDeviceCount()
    except Exception as error:
        status = getattr(error, "status", None)
        if status == OLD_DRIVER:
            return (
                f"the NVIDIA driver is too old for this CuPy ({_line(error)}); install a newer "
                f"driver from {DRIVER_PAGE}, or the CuPy of its CUDA version "
                '(pip install "cupy-cuda12x[ctk]" for CUDA 12)'
            )
        if status != NO_DEVICE:
            return f"CUDA does not start: {_line(error)}"
        count = 0
    if count > 0:
        return ""
    return (
        "the NVIDIA driver is installed, but it shows no device; look at nvidia-smi and at "
        "CUDA_VISIBLE_DEVICES"
    )


def _no_libraries(cupy: Any) -> str:
    """CuPy compiles its kernels with NVRTC and multiplies with cuBLAS: both are looked for."""
    try:
        cupy.cuda.nvrtc.getVersion()
        import_module("cupy_backends.cuda.libs.cublas")
    except Exception as error:
        return (
            f"CuPy is installed without CUDA's libraries ({_line(error)}); install them with: "
            f'pip install "{PACKAGE}"'
        )
    return ""


def _broken(error: Exception) -> str:
    return f'CuPy cannot be imported ({_line(error)}); install it anew: pip install "{PACKAGE}"'


def _line(error: Exception) -> str:
    """The first line of an error's words."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
