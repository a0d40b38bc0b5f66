"""Let another environment see the packages of this one, after its own.

python tests/oneapi/beside.py build/oneapi/bin/python
"""

from __future__ import annotations

import site
import subprocess
import sys
from pathlib import Path

ASK = "import site; print(site.getsitepackages()[0])"


def main(python: str) -> None:
    """Write the file that adds the packages when that Python starts."""
    command = [python, "-c", ASK]
    own = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (folder,) = site.getsitepackages()
    line = f"import site; site.addsitedir({folder!r})\n"
    Path(own.strip(), "beside.pth").write_text(line)


if __name__ == "__main__":
    main(sys.argv[1])
