"""Entry point of `python -m dlx_check`, which `python -m dlx` passes on to."""

import sys

from dlx_check.cli import main

if __name__ == "__main__":
    sys.exit(main())
