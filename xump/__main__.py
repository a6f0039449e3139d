"""`python -m xump`: the command line."""

import sys

from xump.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
