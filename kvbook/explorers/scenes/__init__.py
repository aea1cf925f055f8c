"""What the figures with sliders show: settings in, plain data out.

Each `*_scene(settings, tables)` returns a dict of text and numbers (title, summary, formula,
numbers, panels) that `kvbook.explorers.svg` draws. The rendered page runs both in JavaScript
(tools/build_explorers.py translates them), so the modules here keep to a small language: numbers,
lists, dicts with string keys, loops, and no separate arithmetic where `kvlib.costs.formulas`
has the formula.
"""
