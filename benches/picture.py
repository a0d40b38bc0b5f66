"""The pictures of the README and of `docs/performance.md`: dlx beside the rest.

Each names its bars and what they are of; the README's says word for word what was
measured, on a machine without a GPU.
"""

import math
import statistics
from html import escape
from pathlib import Path
from typing import NamedTuple

from results import Document

DOCS = Path(__file__).resolve().parent.parent / "docs"
OWN, BY_HAND = "#d1495b", "#3d405b"
OTHER = "#b8bcc8"
WIDTH = 720
LEFT = 280  # where the bars begin, to the right of the names
DECADE = 100  # a factor of ten, in pixels
LONGEST = 390  # the longest bar where lengths are proportional
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


# Each bar: its name, the path whose row has it, and the column, which is dlx's or not.
LAUNCH = "dlx.launcher, 3 torch tensors on a device"
LAUNCHES = (
    ("C by hand", LAUNCH, "C by hand"),
    ("dlx.launcher", LAUNCH, ""),
    ("tvm-ffi", LAUNCH, "tvm-ffi call"),
    ("dlx.borrow", "dlx.borrow(3 torch tensors on a device)", ""),
    ("__dlpack__", LAUNCH, "their __dlpack__"),
)


class Bar(NamedTuple):
    """One bar of a picture."""

    group: str
    name: str
    ns: float


class Picture(NamedTuple):
    """A picture: a block of bars for each group."""

    file: Path
    title: str
    is_logarithmic: bool
    bars: list[Bar]
    caption: list[str]


def time(runs: Document, path: str, against: str = "") -> float | None:
    """Return dlx's time of a path, or that of what it is compared with.

    dlx's is the median over its rows: the minimum of several would be unfair to the
    single times of the others.
    """
    rows = [row for row in runs["rows"] if row["path"] == path]
    if not against:
        own = [row["dlx"] for row in rows if row["dlx"] is not None]
        return statistics.median(own) if own else None
    return next((row["its"] for row in rows if row["against"] == against), None)


def where(runs: Document) -> str:
    """Say where and when it was measured."""
    about = runs["machine"]
    return f"{about['cpu']}, Python {about['python']}, {about['date'][:10]}"


def hops(runs: Document) -> Picture:
    """Return the page's picture: dlx first, the others from fast to slow."""
    drawn = []
    for hop, (path, others) in HOPS.items():
        named = [("dlx", time(runs, path))]
        rest = [(name, time(runs, path, each)) for each, name in others.items()]
        named += sorted(rest, key=lambda bar: bar[1] or 0)
        drawn += [Bar(hop, name, ns) for name, ns in named if ns is not None]
    title = "ns per hop of a small CPU tensor (log scale)"
    return Picture(DOCS / "performance.svg", title, True, drawn, [where(runs)])


def launches(device: Document) -> Picture:
    """Return the README's picture: three tensors of torch on their way to a kernel."""
    timed = [(name, time(device, *column)) for name, *column in LAUNCHES]
    what = "three torch tensors"
    drawn = [Bar(what, name, ns) for name, ns in timed if ns is not None]
    drawn.sort(key=lambda bar: bar.ns)
    title = "ns of the host until a kernel can run on three CUDA tensors"
    caption = [
        "Measured without a GPU: the tensors are on the CPU and claim CUDA, the driver",
        "does nothing, and the function launches nothing. Their __dlpack__ is that of",
        "CPU tensors, and exports for no stream.",
        where(device),
    ]
    return Picture(DOCS / "launch.svg", title, False, drawn, caption)


def amount(ns: float) -> str:
    """Format the number at a bar."""
    return f"{ns:,.0f}" if ns >= 9.95 else f"{ns:.1f}"


def text(x: float, y: float, said: str, attributes: str = "") -> str:
    """Return a text element, centred at `y`."""
    return f'<text x="{x:g}" y="{y + 4:g}"{attributes}>{escape(said)}</text>'


def svg(picture: Picture) -> str:
    """Draw a picture."""
    lines, y, group = [], 30, ""
    longest = max(bar.ns for bar in picture.bars)
    lines.append(text(WIDTH / 2, 14, picture.title, M))
    for bar in picture.bars:
        bold = ' font-weight="bold"'
        if bar.group != group:
            y, group = y + 10, bar.group
            lines.append(text(LEFT - 140, y, group, E + bold))
        is_own = bar.name.startswith("dlx")
        weight = bold if is_own else ""
        colour = OWN if is_own else BY_HAND if bar.name == "C by hand" else OTHER
        if picture.is_logarithmic:
            long = math.log10(bar.ns) * DECADE
        else:
            long = bar.ns / longest * LONGEST
        lines += [
            text(LEFT - 6, y, bar.name, E + weight),
            f'<rect x="{LEFT}" y="{y - 8}" width="{long:.1f}" height="16" '
            f'fill="{colour}"/>',
            text(LEFT + round(long) + 5, y, amount(bar.ns), weight),
        ]
        y += STEP
    for said in picture.caption:
        y += 10
        lines.append(text(WIDTH / 2, y, said, M))
        y += 6
    size = f'width="{WIDTH}" height="{y + 8}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
            'font-family="sans-serif" font-size="12">',
            f'<rect {size} fill="white"/>',
            *lines,
            "</svg>\n",
        ]
    )


def pictures(summary: Document) -> list[Picture]:
    """Return all pictures of what was measured."""
    return [hops(summary["runs"]), launches(summary["device"])]
