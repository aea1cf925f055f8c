"""Chapters as course material: notebooks for nbgrader, with solutions and hidden tests.

`python -m kvbook course --out FOLDER` writes them; needs nbformat (kvlib[book]).
"""

from kvbook.course.build import build_course, course_notebook
from kvbook.course.chapter import Block, Chapter, read_chapter

__all__ = ["Block", "Chapter", "build_course", "course_notebook", "read_chapter"]
