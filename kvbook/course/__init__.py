"""Chapters as course material: student and instructor notebooks in nbgrader's conventions.

`python -m kvbook course --out FOLDER` writes them; needs nbformat (kvlib[book]).
"""

from kvbook.course.build import build_course, instructor_notebook, student_notebook
from kvbook.course.chapter import Block, Chapter, read_chapter

__all__ = [
    "Block",
    "Chapter",
    "build_course",
    "instructor_notebook",
    "read_chapter",
    "student_notebook",
]
