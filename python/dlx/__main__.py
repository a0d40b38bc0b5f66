"""Entry point of `python -m dlx`."""

import sys

from dlx.cli import main

if __name__ == "__main__":
    sys.exit(main())
