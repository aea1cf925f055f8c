"""``python -m kvlib``: does a model fit, and how fast can it be (see `kvlib.costs.cli`)."""

import sys

from kvlib.commands import run
from kvlib.costs.cli import main

sys.exit(run(main))
