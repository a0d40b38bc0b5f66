"""The picture of `docs/performance.md`: ns per hop, dlx beside the rest."""

import math
import statistics
from html import escape
from pathlib import Path
from typing import NamedTuple

from results import Document

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "performance.svg"
COLOURS = {"dlx": "#d1495b", "C by hand": "#3d405b"}
OTHER = "#b8bcc8"
WIDTH = 720
LEFT = 280  # where the bars begin, to the right of the names
DECADE = 100  # a factor of ten, in pixels
STEP = 19  # from bar to bar
E, M = ' text-anchor="end"', ' text-anchor="middle"'

# Hop: the row's path, and the columns compared, with their names.
HOPS: dict[str, tuple[str, dict[str, str]]] = {
    "torch → NumPy": (
        "dlx.convert(torch, np.ndarray)",
        {"t.numpy()": "t.numpy()", "np.from_dlpack(torch)": "np.from_dlpack"},
    ),
    "NumPy → torch": (
        "dlx.convert(ndarray, torch.Tensor)",
        {
            "torch.from_numpy(ndarray)": "torch.from_numpy",
            "torch.from_dlpack(ndarray)": "torch.from_dlpack",
        },
    ),
    "take a torch tensor": (
        "dlx.from_dlpack(torch)",
        {
            "C from_table(torch)": "C by hand",
            "tvm_ffi.from_dlpack(torch)": "tvm-ffi",
            "dlpark(torch)": "dlpark",
            "nanobind(torch)": "nanobind",
            "StridedMemoryView(torch)": "cuda.core",
            "torch.from_dlpack(torch)": "torch",
        },
    ),
    "take a NumPy array": (
        "dlx.from_dlpack(ndarray)",
        {
            "C from_protocol(ndarray)": "C by hand",
            "nanobind(ndarray)": "nanobind",
            "StridedMemoryView(ndarray)": "cuda.core",
            "tvm_ffi.from_dlpack(ndarray)": "tvm-ffi",
            "dlpark(ndarray)": "dlpark",
        },
    ),
    "borrow in C": (
        "table: dltensor_from_py",
        {"C Tensor's own": "C by hand", "torch.Tensor's own": "torch"},
    ),
}


class Bar(NamedTuple):
    """One bar of the picture."""

    hop: str
    name: str
    ns: float


def bars(runs: Document) -> list[Bar]:
    """Return the bars: for each hop dlx first, the others from fast to slow."""
    drawn = []
    for hop, (path, others) in HOPS.items():
        rows = [row for row in runs["rows"] if row["path"] == path]
        own = [row["dlx"] for row in rows if row["dlx"] is not None]
        if not own:
            continue
        # The minimum of several would be unfair to the single times of the others.
        drawn.append(Bar(hop, "dlx", statistics.median(own)))
        rest = [
            Bar(hop, others[row["against"]], row["its"])
            for row in rows
            if row["against"] in others and row["its"] is not None
        ]
        drawn += sorted(rest, key=lambda bar: bar.ns)
    return drawn


def amount(ns: float) -> str:
    """Format the number at a bar."""
    return f"{ns:,.0f}" if ns >= 9.95 else f"{ns:.1f}"


def text(x: float, y: float, said: str, attributes: str = "") -> str:
    """Return a text element, centred at `y`."""
    return f'<text x="{x:g}" y="{y + 4:g}"{attributes}>{escape(said)}</text>'


def svg(runs: Document) -> str:
    """Return the picture: a block of bars for each hop, of logarithmic length."""
    about = runs["machine"]
    lines, y, hop = [], 30, ""
    lines.append(text(WIDTH / 2, 14, "ns per hop of a small CPU tensor (log scale)", M))
    for bar in bars(runs):
        bold = ' font-weight="bold"'
        if bar.hop != hop:
            y, hop = y + 10, bar.hop
            lines.append(text(LEFT - 140, y, hop, E + bold))
        weight = bold if bar.name == "dlx" else ""
        colour, long = COLOURS.get(bar.name, OTHER), math.log10(bar.ns) * DECADE
        lines += [
            text(LEFT - 6, y, bar.name, E + weight),
            f'<rect x="{LEFT}" y="{y - 8}" width="{long:.1f}" height="16" '
            f'fill="{colour}"/>',
            text(LEFT + round(long) + 5, y, amount(bar.ns), weight),
        ]
        y += STEP
    caption = f"{about['cpu']}, Python {about['python']}, {about['date'][:10]}"
    lines.append(text(WIDTH / 2, y + 10, caption, M))
    size = f'width="{WIDTH}" height="{y + 24}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
            'font-family="sans-serif" font-size="12">',
            f'<rect {size} fill="white"/>',
            *lines,
            "</svg>\n",
        ]
    )
