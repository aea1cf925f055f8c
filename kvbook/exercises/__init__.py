"""Checkers for the book's exercises: one module a chapter, all speaking through `report`.

In a notebook: `from kvbook.exercises.cached import check_append`, then `check_append(append)`.
"""
