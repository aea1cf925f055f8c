"""Grade a notebook: run it in a separate kernel and ask each exercise's checker there.

A notebook is a program and runs with your rights. The limits stop accidents, not attacks: see
SECURITY.md for notebooks from people whom you do not trust. Needs kvlib[book].
"""

import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kvbook.exercises.catalogue import Exercise, chapters, exercises, of_chapter
from kvbook.exercises.wording import readable

WHOLE = 10  # times the seconds of a cell, for the whole notebook
LEAST_MEMORY = 512  # megabytes; NumPy alone takes 400
VERDICT = "application/vnd.kvbook.verdict+json"


@dataclass(frozen=True)
class Verdict:
    """One exercise: status is "passed", "failed" or "not answered", finding the checker's words."""

    label: str
    title: str
    of: int
    status: str = "failed"
    finding: str = ""

    @property
    def points(self) -> int:
        """All of the exercise's points, or none."""
        return self.of if self.status == "passed" else 0


@dataclass(frozen=True)
class Grade:
    """The verdicts on a notebook; its text is the report that `grade` prints."""

    file: str
    chapter: str
    verdicts: tuple[Verdict, ...]

    @property
    def points(self) -> int:
        return sum(v.points for v in self.verdicts)

    @property
    def of(self) -> int:
        return sum(v.of for v in self.verdicts)

    def asdict(self) -> dict[str, Any]:
        """The grade as plain data, for JSON."""
        found = [{"points": v.points, **asdict(v)} for v in self.verdicts]
        sums = {"points": self.points, "of": self.of}
        return {"file": self.file, "chapter": self.chapter, **sums, "exercises": found}

    def __str__(self) -> str:
        lines = [f"{self.file}, {self.chapter}: {self.points} of {self.of} points"]
        for v in self.verdicts:
            lines += ["", f"{v.title} ({v.label}): {v.status}, {v.points} of {v.of}"]
            lines += [f"  {line}" for line in v.finding.splitlines()]
        return "\n".join(lines)


def grade(
    path: Path, chapter: str | None = None, seconds: float = 60.0, memory: int = 4096
) -> Grade:
    """Run a notebook and return what its chapter's checkers find.

    chapter  whose exercises; None: the notebook's metadata or its file name tell
    seconds  for one cell or one check, and ten times as many for the whole notebook
    memory   megabytes of address space of the kernel, where the system limits that

    What the notebook does wrong is in the grade. ValueError for a file that is no notebook, a
    chapter that has no exercises, and a limit below 1 second or 512 MB.
    """
    if not seconds >= 1:
        raise ValueError(f"--timeout must be at least 1 second, got {seconds:g}")
    if memory < LEAST_MEMORY:
        raise ValueError(f"--memory must be at least {LEAST_MEMORY} MB, got {memory}")
    notebook = _read(path)
    said = notebook["metadata"].get("kvlib")
    chapter = chapter or (said.get("chapter") if isinstance(said, dict) else None) or path.stem
    if chapter not in chapters():
        raise ValueError(
            f"there are no exercises of a chapter {str(chapter)[:80]!r}; name the notebook's "
            f"chapter with --chapter: {', '.join(chapters())}"
        )
    chosen = of_chapter(chapter)
    return Grade(readable(path.name), chapter, _run(notebook, path, chosen, seconds, memory))


def _read(path: Path) -> Any:
    import nbformat

    if path.is_dir():
        raise ValueError(f"{path} is a folder, needed one notebook")
    text = path.read_bytes()
    try:
        notebook = nbformat.reads(text.decode("utf-8"), as_version=4)
        nbformat.validate(notebook)
    except Exception as error:  # of JSON, of the schema, or of a part that is missing
        said = (str(error).splitlines() or [""])[0]
        raise ValueError(f"{path.name} is not a notebook: {readable(said, 200)}") from None
    return notebook


def _run(
    notebook: Any, path: Path, chosen: tuple[Exercise, ...], seconds: float, memory: int
) -> tuple[Verdict, ...]:
    """Run the code cells, then one cell for each exercise that shows its verdict."""
    from nbclient.exceptions import DeadKernelError
    from nbformat.v4 import new_code_cell
    from tqdm import tqdm

    ours = "__import__('kvbook.grade').grade"
    first = new_code_cell(f"{ours}._limit_memory({memory * 2**20})")
    asking = [new_code_cell(f"{ours}._show_verdict({e.label!r}, globals())") for e in chosen]
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    notebook["cells"] = [first, *code, *asking]
    until = time.monotonic() + WHOLE * seconds
    client = _client(notebook, path.resolve().parent, seconds, until)
    lost = f"the notebook took more than {WHOLE * seconds:g} seconds"
    bar = tqdm(notebook["cells"], unit="cell", delay=2, disable=None, leave=False)
    with client.setup_kernel(env={**os.environ, "KVLIB_PROGRESS": "off"}), bar:
        for index, cell in enumerate(bar):
            if time.monotonic() >= until:
                break
            try:
                client.execute_cell(cell, index)
            except DeadKernelError:
                lost = "the notebook ended its kernel, or took more memory than it may"
                break
        else:
            lost = f"its check took more than {seconds:g} seconds, or was stopped"
    return tuple(_verdict(e, cell, lost) for e, cell in zip(chosen, asking, strict=True))


def _client(notebook: Any, folder: Path, seconds: float, until: float) -> Any:
    """A client of a kernel of this Python, which keeps of all outputs only verdicts."""
    from nbclient import NotebookClient

    class Client(NotebookClient):
        def output(self, outs: Any, msg: Any, display_id: Any, cell_index: Any) -> Any:
            if VERDICT in msg["content"].get("data", {}):
                return super().output(outs, msg, display_id, cell_index)
            return None

    client = Client(
        notebook,
        allow_errors=True,
        interrupt_on_timeout=True,
        error_on_timeout={"ename": "TimeoutError", "evalue": "", "traceback": []},
        timeout_func=lambda cell: max(0.1, min(seconds, until - time.monotonic())),
        resources={"metadata": {"path": str(folder)}},
    )
    # without folders of kernels there is one kernel: of the Python that runs this
    client.create_kernel_manager().kernel_spec_manager.kernel_dirs = []
    return client


def _verdict(exercise: Exercise, cell: Any, lost: str) -> Verdict:
    """The verdict that a cell shows; `lost` says why it may show none."""
    verdict = Verdict(exercise.label, exercise.title, exercise.points, finding=lost)
    for output in cell["outputs"]:
        found = output["data"][VERDICT]
        if isinstance(found, dict) and found.get("status") in ("passed", "failed", "not answered"):
            finding = readable(str(found.get("finding", "")))
            return replace(verdict, status=found["status"], finding=finding)
    return verdict


def _limit_memory(size: int) -> None:
    """Limit the address space of this process, where the system can."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    except (ImportError, ValueError, OSError):
        return  # Windows has no such limit, macOS refuses it, and a lower one stays


def _show_verdict(label: str, space: dict[str, Any]) -> None:
    """Ask the checker of an exercise about what the notebook defines, and display the verdict."""
    from IPython.display import display

    exercise = next(e for e in exercises() if e.label == label)
    status, finding = "not answered", f"the notebook does not define {exercise.name}"
    if exercise.name in space:
        try:
            report = exercise.check()(space[exercise.name])
            status, finding = report.status, report.finding
        except TypeError as error:  # it cannot be called
            status, finding = "failed", str(error)
    status = {"not yet": "failed", "not done yet": "not answered"}.get(status, status)
    display({VERDICT: {"status": status, "finding": finding}}, raw=True)
