"""Grade a notebook without trusting it: `python -m kvbook grade notebook.ipynb`.

What counts is what kvlib's own checkers say of the learner's functions. Nothing that the notebook
prints or claims is read, and no checker runs in the process that runs the notebook.

    grader      reads the file, starts a checking process, ends what hangs, adds up the points
    checking    draws inputs, calls the answers from outside, compares what comes back
    answering   runs the cells that the answers need, then forks
    its child   one check each: calls the learner's functions on the inputs that it is given

Between checking and answering, plain data crosses a socket (`channel`, `values`): numbers, texts,
containers, arrays. Nothing that an answer sends is executed or unpickled. A cache or a model that a
checker lends stays in the checking process, and the answer gets a stand-in that asks for it
(`lent`). So the process with the notebook's code holds no seed, no expected result and no verdict.

Three exercises of the museum are exceptions (`checking.TOGETHER`). Their answers are tests of
kvlib, or changes to it, so they are checked in the answering process, where kvlib is changed. Two
more figures are measured there: steps of Python and bytes of memory (`counted`). Code that is
written against the grader can forge these.

The answering process runs behind bubblewrap where that works (`sandbox`). Elsewhere `walls` keeps
it from reading the memory and the environment of the grader, but it has the rights of the account.

nbgrader runs the notebook, its hidden tests and the comparison in one kernel of the instructor's
account, so it has neither wall. otter-grader runs each submission in a Docker container: that is a
stronger outer wall, needs a daemon and an image, and leaves answers and tests in one process inside
it. Our command can run in such a container, too.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbook.grading.draws import passes as passes
    from kvbook.grading.draws import redrawn as redrawn
    from kvbook.grading.folder import grade_folder as grade_folder
    from kvbook.grading.grader import grade as grade
    from kvbook.grading.limits import Limits as Limits
    from kvbook.grading.result import Grade as Grade
    from kvbook.grading.result import Verdict as Verdict
else:  # the process that runs a notebook has no use for these
    from kvlib.lazy import attach

    __getattr__, __dir__, __all__ = attach(__name__)
