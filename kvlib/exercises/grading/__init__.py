"""Grade a notebook without trusting it: `python -m kvlib.exercises grade notebook.ipynb`.

The notebook's answers run in a process of their own (`worker`), with limits on time, memory and
output. What counts is what kvlib's own checkers say of the learner's functions there; nothing that
the notebook prints or claims is read.

    parent     reads the file, starts workers, ends those that hang, adds up the points
    worker     imports the checkers, then runs what the answers need (`needed`), puts back
               whatever was changed in kvlib, NumPy and Python (`guard`), then forks
    child      one exercise each: calls the checker, says what it found, ends

It stands accidents (crashes, loops, floods, exits) and the usual tricks: a checker that is defined
again, a `Report` or an `np.allclose` that was replaced before the check or was found replaced after
it, a function whose code or defaults were changed, an answer that writes "passed" to every open
file.

What it does not promise: an answer and its checker run in one interpreter, so whoever writes code
for this very grader wins. An answer can replace `np.isclose` by a function that puts the right one
back when it is called; it can look through the memory of the process that grades it, or harm the
account that runs it. Such notebooks belong in a container, and before a person who reads them.
"""

from kvlib.exercises.grading.draws import passes, redrawn
from kvlib.exercises.grading.folder import grade_folder
from kvlib.exercises.grading.grader import grade
from kvlib.exercises.grading.limits import Limits
from kvlib.exercises.grading.result import Grade, Verdict

__all__ = ["Grade", "Limits", "Verdict", "grade", "grade_folder", "passes", "redrawn"]
