"""The picture of `docs/interop.md`: its ratios by `dlx.convert` as a heat map."""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path

PICTURE = Path(__file__).parents[2] / "docs" / "interop.svg"
# Blue and orange differ for everybody, and black is readable on both.
FASTER, EQUAL, SLOWER = (103, 169, 207), (247, 247, 247), (241, 163, 64)
FULL = 8  # the ratio, or its inverse, that gets the full colour
KEY = (0.125, 0.25, 0.5, 1, 2, 4, 8)
LEFT, TOP, WIDE, HIGH = 122, 130, 46, 22
STYLE = (
    "<style>rect.page{fill:#fff}text{fill:#1f2328}text.cell{fill:#000}"
    "@media(prefers-color-scheme:dark)"
    "{rect.page{fill:#0d1117}text{fill:#e6edf3}}</style>"
)
E, M = ' text-anchor="end"', ' text-anchor="middle"'

Ratios = dict[tuple[str, str], float]


def ratios(rows: list[list[str]]) -> Ratios:
    """Read a matrix: by producer and consumer."""
    (_, *consumers), *lines = rows
    found = {}
    for producer, *cells in lines:
        for consumer, cell in zip(consumers, cells, strict=True):
            if ratio := re.search(r" x([\d.]+)$", cell):
                found[producer, consumer] = float(ratio[1])
    return found


def colour(ratio: float) -> str:
    """Return the fill of a cell: how far the ratio is from 1, on a log scale."""
    far = max(-1.0, min(1.0, math.log(ratio) / math.log(FULL)))
    end = SLOWER if far > 0 else FASTER
    mixed = (
        round(one + (other - one) * abs(far))
        for one, other in zip(EQUAL, end, strict=True)
    )
    return "#" + "".join(f"{part:02x}" for part in mixed)


def amount(ratio: float) -> str:
    """Format a ratio with two digits."""
    return f"{ratio:.1f}" if ratio >= 0.995 else f"{ratio:.2f}"


def text(x: float, y: float, said: str, attributes: str = "") -> str:
    """Return a text element, centred at `y`."""
    return f'<text x="{x:g}" y="{y + 4:g}"{attributes}>{escape(said)}</text>'


def cell(x: int, y: int, ratio: float) -> list[str]:
    """Return one cell, with its figure."""
    return [
        f'<rect x="{x}" y="{y}" width="{WIDE - 2}" height="{HIGH - 2}" '
        f'fill="{colour(ratio)}"/>',
        text(x + WIDE / 2 - 1, y + HIGH / 2 - 1, amount(ratio), M + ' class="cell"'),
    ]


def svg(rows: list[list[str]]) -> str:
    """Return the picture of a matrix: producers by consumers."""
    found = ratios(rows)
    producers = list(dict.fromkeys(producer for producer, _ in found))
    consumers = list(dict.fromkeys(consumer for _, consumer in found))
    lines = [
        text(10, 14, "Time of dlx.convert(x, consumer), with that of the consumer's"),
        text(10, 30, "own import of x as 1: blue is faster, orange slower"),
    ]
    for column, consumer in enumerate(consumers):
        x, y = LEFT + column * WIDE + WIDE / 2, TOP - 10
        turned = f' transform="rotate(-45 {x:g} {y})"'
        lines.append(text(x, y, consumer, turned))
    for row, producer in enumerate(producers):
        y = TOP + row * HIGH
        lines.append(text(LEFT - 8, y + HIGH / 2 - 1, producer, E))
        for column, consumer in enumerate(consumers):
            if ratio := found.get((producer, consumer)):
                lines += cell(LEFT + column * WIDE, y, ratio)
    below = TOP + len(producers) * HIGH + 14
    for place, ratio in enumerate(KEY):
        lines += cell(LEFT + place * WIDE, below, ratio)
    width, height = LEFT + len(consumers) * WIDE + 70, below + HIGH + 10
    size = f'width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
            'font-family="sans-serif" font-size="12">',
            STYLE,
            f'<rect class="page" {size}/>',
            *lines,
            "</svg>\n",
        ]
    )
