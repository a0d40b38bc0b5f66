"""Draw `docs/performance.svg`: ns per hop, dlx beside the rest.

    python benches/plot.py

What is drawn is the newest run in `results/`; the picture carries its digest.
"""

import hashlib
import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from results import Document, newest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "performance.svg"
COLOURS = {"dlx": "#d1495b", "C by hand": "#3d405b"}
OTHER = "#b8bcc8"

# Hop: the row's path, and who is compared in it under which name.
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


def bars(run: Document) -> list[Bar]:
    """Pick what is drawn: for each hop dlx first, the rest from fast to slow."""
    drawn = []
    for hop, (path, others) in HOPS.items():
        rows = [row for row in run["rows"] if row["path"] == path]
        own = [row["ours"]["ns"]["minimum"] for row in rows if "ns" in row["ours"]]
        if not own:
            continue
        # The least of several would be luckier than the others' one.
        drawn.append(Bar(hop, "dlx", statistics.median(own)))
        rest = [
            Bar(hop, others[row["theirs"]["name"]], row["theirs"]["ns"]["minimum"])
            for row in rows
            if row["theirs"]["name"] in others and "ns" in row["theirs"]
        ]
        drawn += sorted(rest, key=lambda bar: bar.ns)
    return drawn


def chosen(runs: Document) -> Document:
    """The run of which the page tells: the Python in which most rows could run."""

    def timed(run: Document) -> int:
        return sum(row["value"] is not None for row in run["rows"])

    run: Document = max(runs["runs"].values(), key=timed)
    return run


def digest(drawn: list[Bar], about: Document) -> str:
    """What the picture says, in one number."""
    text = json.dumps([drawn, about["cpu"], about["date"], about["versions"]])
    return hashlib.sha256(text.encode()).hexdigest()


def caption(about: Document) -> str:
    """Where and when."""
    return f"{about['cpu']}, Python {about['python']}, {about['date'][:10]}"


def picture(drawn: list[Bar], about: Document) -> "Figure":
    """Make the picture: a block of bars for each hop."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 0.26 * len(drawn) + 0.2 * len(HOPS) + 0.7))
    axes = figure.subplots()
    left = axes.get_yaxis_transform()
    y, hop = 0.0, ""
    for bar in drawn:
        if bar.hop != hop:
            y += 0.9 if hop else 0.0
            hop = bar.hop
            bold: dict[str, Any] = {"weight": "bold", "transform": left}
            axes.text(-0.19, y, hop, ha="right", va="center", **bold)
        weight = "bold" if bar.name == "dlx" else "normal"
        text: dict[str, Any] = {"va": "center", "size": 9, "weight": weight}
        axes.barh(y, bar.ns, color=COLOURS.get(bar.name, OTHER), height=0.82)
        axes.text(bar.ns * 1.06, y, amount(bar.ns), **text)
        axes.text(-0.01, y, bar.name, ha="right", transform=left, **text)
        y += 1
    axes.set(xscale="log", ylim=(y - 0.2, -0.9), yticks=[])
    axes.set_xlim(1, 2.5 * max(bar.ns for bar in drawn))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title("ns per hop of a small CPU tensor (log scale)", size=11)
    axes.set_xlabel(caption(about), size=8, color="#666666")
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def amount(ns: float) -> str:
    """A number as it stands at its bar."""
    return f"{ns:,.0f}" if ns >= 9.95 else f"{ns:.1f}"


def draw(run: Document, target: Path) -> None:
    """Write the picture."""
    import matplotlib

    drawn, about = bars(run), run["machine"]
    # Text as text, and the same file for the same numbers.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "dlx"})
    data = {"Date": None, "Description": digest(drawn, about), "Creator": None}
    figure = picture(drawn, about)
    figure.savefig(target, format="svg", metadata=data, bbox_inches="tight")
    lines = target.read_text().splitlines()
    target.write_text("\n".join(map(str.rstrip, lines)) + "\n")


if __name__ == "__main__":
    draw(chosen(json.loads(newest().read_text())), PICTURE)
