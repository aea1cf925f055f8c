"""hypothesis draws the same examples every time, so that a red run is red again.

To search for new failures: pytest --hypothesis-profile=search
"""

try:
    from hypothesis import settings
except ImportError:  # `make gpu` with a bare Python runs the tests that need no hypothesis
    pass
else:
    settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
    settings.register_profile("search", derandomize=False, deadline=None, database=None)
    settings.load_profile("repeatable")
