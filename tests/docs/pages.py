"""Write the pages of the site that the tree does not have: tables made from results.

PYTHONPATH=tests:benches python -m docs.pages FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import report as measurements
from dlx_check.conformance import requirements as table
from interop import conformance
from interop import report as pairs

REQUIREMENTS = """\
# Requirements

What DLPack 1.3, the Python array API and related protocols require of a producer (P), a
consumer (C) and an exchange table (X). Tests and source code cite these by number.
MUST, SHOULD and MAY are the source's; "d-" means derived, AMB that the sources
conflict.

| # | who | level | statement | source |
|---|---|---|---|---|
"""


def requirements() -> str:
    """Return the table of requirements."""
    rows = (
        f"| {each.name} | {each.who} | {each.level} | {each.statement} "
        f"| {each.source} |\n"
        for each in table.requirements().values()
    )
    return REQUIREMENTS + "".join(rows)


def pages() -> dict[str, str]:
    """Return the pages by name."""
    return {
        "conformance.md": conformance.page(conformance.load()),
        "measurements.md": measurements.tables(),
        "pairs.md": pairs.page(pairs.load()),
        "requirements.md": requirements(),
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)
