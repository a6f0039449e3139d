"""How many steps the programs of these tests make: `XUMP_STEPS`, or few, so that the suite is quick; `make soak`: a million."""

import os

STEPS = int(os.environ.get("XUMP_STEPS", "8000"))
