"""``python -m kvlib.costs`` is ``python -m kvlib`` (see `kvlib.costs.cli`)."""

import sys

from kvlib.commands import run
from kvlib.costs.cli import main

sys.exit(run(main))
