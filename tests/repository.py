"""Small helpers of the tests on the repository itself: run a command, read the version."""

import ast
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str, cwd: Path = ROOT, **options: Any) -> str:
    """What a command prints; AssertionError with its error text if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def version() -> str:
    """kvlib's version, read without importing it."""
    for node in ast.parse((ROOT / "kvlib" / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__version__":
            return str(ast.literal_eval(node.value))
    raise AssertionError("kvlib/__init__.py sets no __version__")
