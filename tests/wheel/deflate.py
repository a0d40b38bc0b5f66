"""Compress wheels again by Zopfli, whose deflated data is smaller than zlib's best.

python tests/wheel/deflate.py WHEEL...
"""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import zopfli


def main(*wheels: str) -> None:
    """Replace each wheel by one with the same files."""
    for wheel in map(Path, wheels):
        smaller = wheel.with_suffix(".smaller")
        with ZipFile(wheel) as old, zopfli.ZipFile(smaller, "w", ZIP_DEFLATED) as new:
            for info in old.infolist():
                new.writestr(info, old.read(info))
        print(f"{wheel.name}: {wheel.stat().st_size} -> {smaller.stat().st_size} bytes")
        smaller.replace(wheel)


if __name__ == "__main__":
    main(*sys.argv[1:])
