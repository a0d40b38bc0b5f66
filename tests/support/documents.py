"""The documents whose blocks of code are run, and what a block is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    "README.md",
    "docs/bridge.md",
    "docs/classes.md",
    "docs/convert.md",
    "docs/devices.md",
    "docs/inspect.md",
    "docs/launcher.md",
    "packages/dlx-check/README.md",
    "packages/dlx-share/README.md",
)
TEXTS = {name: (ROOT / name).read_text() for name in DOCUMENTS}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
