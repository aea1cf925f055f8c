"""A pytest plugin: nbval's kernels are forked from one process that has imported their libraries.

A kernel imports ipykernel, NumPy and matplotlib before its first cell, which takes as much
processor time as all cells of a short chapter. One process per pytest worker imports them once, and
each notebook's kernel is a fork of it: an ordinary ipykernel, with a session, namespace, working
separate directory and environment. kvlib is not among the imports, so each notebook still imports
kvlib itself. Linux only; elsewhere kernels start as usual.

    python -m pytest -p tools.warm_kernels --nbval --nbval-current-env book/*.ipynb
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any

# not matplotlib's inline backend: it looks for a running IPython when it is imported
LIBRARIES = ("ipykernel.ipkernel", "numpy", "matplotlib.pyplot", "matplotlib.backends.backend_agg")
INLINE = "module://matplotlib_inline.backend_inline"  # as ipykernel sets it, before any import
LAUNCHER = ["-m", "ipykernel_launcher"]


class Kernel:
    """The fork that runs a kernel; what jupyter_client asks of a Popen."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:  # the server reaps its forks at once
            return 0
        return None

    def wait(self) -> int:
        return 0  # jupyter_client polls first, until poll() is not None

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Plugin:
    """Launches ipykernels as forks of one server, and any other kernel as jupyter_client does."""

    def __init__(self, launch: Any) -> None:
        self.launch = launch
        self.server: subprocess.Popen[bytes] | None = None

    def __call__(self, command: list[str], **settings: Any) -> Any:
        at = command.index(LAUNCHER[0]) if LAUNCHER[0] in command else 0
        if command[0] != sys.executable or command[at : at + 2] != LAUNCHER:
            return self.launch(command, **settings)
        if self.server is None:
            self.ours, theirs = socket.socketpair()
            self.server = subprocess.Popen([sys.executable, __file__], stdin=theirs)
            theirs.close()
        env = dict(os.environ if settings.get("env") is None else settings["env"])
        asked = {"argv": command[at + 1 :], "cwd": settings.get("cwd"), "env": env}
        self.ours.sendall(json.dumps(asked).encode() + b"\n")
        return Kernel(int(self.ours.makefile().readline()))

    def pytest_unconfigure(self) -> None:
        if self.server is not None:
            self.ours.close()
            self.server.wait()


def pytest_configure(config: Any) -> None:
    if sys.platform != "linux":
        return
    from jupyter_client.provisioning import local_provisioner

    plugin = Plugin(local_provisioner.launch_kernel)
    local_provisioner.launch_kernel = plugin
    config.pluginmanager.register(plugin, "warm-kernels")


def serve() -> None:
    """Fork a kernel for each line on the socket that is standard input, and answer with its pid."""
    link = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.setdefault("MPLBACKEND", INLINE)
    sys.path.pop(0)  # this folder
    for library in LIBRARIES:
        importlib.import_module(library)
    gc.collect()
    gc.freeze()  # a collection in a kernel would copy the pages of all these modules
    signal.signal(signal.SIGCHLD, reap)
    for line in link.makefile():
        server = os.getpid()
        if os.fork() == 0:
            run(json.loads(line), link, server)


def reap(*_: Any) -> None:
    """Wait for forks that have ended, so that their time counts as this process's."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def run(asked: dict[str, Any], link: socket.socket, server: int) -> None:
    """Be the kernel that was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # before the answer: jupyter_client sends signals to the kernel's whole group
    link.sendall(b"%d\n" % os.getpid())
    link.close()
    os.environ.clear()
    # a kernel ends when its parent has changed
    os.environ.update(asked["env"], JPY_PARENT_PID=str(server))
    os.chdir(asked["cwd"] or ".")
    sys.argv = asked["argv"]
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()
    sys.exit()


if __name__ == "__main__":
    serve()
