"""The device is the CPU: Intel's OpenCL, which pip installs beside dpctl."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# The loader of OpenCL knows only drivers that are installed for the whole machine. It
# reads this when dpctl is imported.
_DRIVER = Path(sys.prefix, "lib/libintelocl.so")
if _DRIVER.exists():
    os.environ.setdefault("OCL_ICD_FILENAMES", str(_DRIVER))
