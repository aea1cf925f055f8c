"""What the figures with sliders show: settings in, plain data out.

Each `*_scene(settings, tables)` returns a dict of text and numbers (title, summary, formula,
numbers, panels) that a notebook draws with matplotlib and the rendered page draws as SVG. The page
runs these functions in JavaScript (tools/build_explorers.py translates them), so the modules here
keep to a small language: numbers, lists, dicts with string keys, loops, and no arithmetic of their
own where `kvlib.costs.formulas` has the formula.
"""
