"""The tables of what was measured, made from `results`.

    python benches/report.py

writes the table of `docs/performance.md`, between `<!-- begin NAME -->` and
`<!-- end -->`, and the pictures of `picture.py`. The rest of that page is written by
hand. All other tables are a page of the site, which `tables` returns.
"""

import json
import re

from instruction_paths import FLOORS, PATHS
from picture import DOCS, pictures, svg
from results import RESULTS, Document
from summary import load

PAGE = DOCS / "performance.md"
BLOCK = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
# The rows of the page: a path, and what it is compared with.
CHOSEN = [
    ("dlx.from_dlpack(torch)", "torch.from_dlpack(torch)"),
    ("dlx.from_dlpack(ndarray)", "ndarray.__dlpack__(max_version=(1, 0))"),
    ("np.from_dlpack(dlx)", "np.from_dlpack(ndarray)"),
    ("dlx.convert(torch, np.ndarray)", "t.numpy()"),
    ("dlx.convert(ndarray, torch.Tensor)", "torch.from_numpy(ndarray)"),
    ("dlx.convert(jax, np.ndarray)", "np.asarray(jax)"),
    ("dlx.convert(ndarray, jax.Array)", "jnp.from_dlpack(ndarray)"),
    ("dlx.convert(__dlpack__ alone, np.ndarray)", "np.from_dlpack(the same)"),
    ("tvm-ffi call, three dlx tensors", "three torch tensors"),
    ("dlx.launcher, three torch tensors", "the function of C's addresses"),
    ("dlx.borrow(three torch tensors)", "three imports"),
]
# Columns of text beside the first.
TEXT = {"compared with", "which is"}
INTRODUCTION = """\
# Measurements

[Performance](performance.md) says how these were measured. Times are in ns unless a
unit stands beside them.
"""


def table(head: list[str], lines: list[list[str]]) -> str:
    """Format a table; most columns but the first hold numbers."""
    rule = ["---", *("---" if name in TEXT else "---:" for name in head[1:])]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *lines))


def where(about: Document) -> str:
    """Format where, when and with what the numbers were measured."""
    versions = ", ".join(f"{k} {v}" for k, v in about["versions"].items() if v)
    return (
        f"{about['cpu']}, {about['cores']} cores, {about['system']}; "
        f"Python {about['python']}, {versions}; {about['date'][:10]}, "
        f"load average {about['load_average']:.1f}; `{about['command']}`.\n\n"
    )


def ns(value: float | None) -> str:
    """Format a time."""
    if value is None:
        return "-"
    if value >= 1e5:
        return f"{value / 1e6:.2f} ms"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def number(value: float) -> str:
    """Format a number with three digits, or with all before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def ratio(row: Document, python: str) -> str:
    """Format the ratio in one Python, or the difference in ms."""
    if "ms" in row:
        return f"{row['ms'][python]:.2f} ms" if python in row["ms"] else "-"
    return f"{row['ratio'][python]:.2f}" if python in row["ratio"] else "-"


def paths(runs: Document) -> str:
    """Format the paths that the page shows."""
    found = {(row["path"], row["against"]): row for row in runs["rows"]}
    main = runs["pythons"][0]
    lines = [
        [path, ns(row["dlx"]), against, ns(row["its"]), ratio(row, main)]
        for path, against in CHOSEN
        for row in [found[path, against]]
    ]
    head = ["path", "dlx", "compared with", "its", "ratio"]
    return where(runs["machine"]) + table(head, lines)


def comparisons(runs: Document) -> str:
    """Format every path, with the ratio in each Python, and what was counted."""
    main, *others = runs["pythons"]
    counted = list(runs["rows"][0].get("counts", {}))
    head = ["path", "dlx", "compared with", "its", f"ratio, {main}", *others, *counted]
    lines = [
        [
            row["path"],
            ns(row["dlx"]),
            row["against"],
            ns(row["its"]),
            *(ratio(row, python) for python in runs["pythons"]),
            *(
                number(row["counts"][name]) if "counts" in row else "-"
                for name in counted
            ),
        ]
        for row in runs["rows"]
    ]
    return where(runs["machine"]) + table(head, lines)


def instructions(counted: Document) -> str:
    """Format the instructions of each path."""
    lines = [
        [
            name,
            f"{each['dlx']:.0f}",
            f"{each['all']:.0f}",
            f"{each['floor']:.0f}" if each["floor"] else "-",
            f"`{FLOORS[name]}`" if each["floor"] else "",
        ]
        for name, each in counted["paths"].items()
        if name in PATHS
    ]
    tools = ", ".join(f"{k} {v}" for k, v in counted["tools"].items() if v)
    tools = tools.replace("rustc rustc", "rustc").replace(
        "valgrind valgrind", "valgrind"
    )
    head = ["path", "in dlx", "in all", "beside it, in all", "which is"]
    return f"{tools}.\n\n" + table(head, lines)


def functions(counted: Document) -> str:
    """Format the functions of dlx in which a path spends most."""
    lines = []
    for name, each in counted["paths"].items():
        most = (f"`{function}` {k:.0f}" for function, k in each["functions"].items())
        lines.append(f"- `{name}`: {', '.join(most)}\n")
    return "".join(lines)


def growth(scaling: Document) -> str:
    """Format how each cost grows, one table for each part."""
    text = where(scaling["machine"])
    for name, part in scaling["parts"].items():
        points = list(
            dict.fromkeys(k for each in part["values"].values() for k in each)
        )
        lines = [
            [path, *(number(each[k]) if k in each else "-" for k in points)]
            for path, each in part["values"].items()
        ]
        text += table([f"{name}, {part['unit']}", *points], lines) + "\n"
    return text.rstrip("\n") + "\n"


def parallel(measured: Document) -> str:
    """Format how calls scale with threads, with and without a GIL."""
    gil = "with a GIL" if measured["machine"]["gil"] else "without a GIL"
    return growth(measured).replace("; Python ", f"; {gil}, Python ", 1)


def pairs(counted: Document) -> str:
    """Format the ratio of each conversion, and what it would be without dlx's part."""
    rows = counted["pairs"]
    consumers = list(dict.fromkeys(name for row in rows.values() for name in row))

    def cell(count: dict[str, int]) -> str:
        least = count["all"] - count["dlx"]
        return f"{count['all'] / count['own']:.2f} ({least / count['own']:.2f})"

    lines = [
        [name, *(cell(row[each]) if each in row else "" for each in consumers)]
        for name, row in rows.items()
    ]
    every = [count for row in rows.values() for count in row.values()]
    ratios = sorted(count["all"] / count["own"] for count in every)
    fewer = sum(ratio < 1 for ratio in ratios)
    versions = ", ".join(f"{k} {v}" for k, v in sorted(counted["versions"].items()))
    return (
        f"{versions}.\n\n"
        + table(["", *consumers], lines)
        + f"\n{len(every)} pairs, median {ratios[len(every) // 2]:.2f}; {fewer} are "
        "below 1.\n"
    )


def blocks() -> dict[str, str]:
    """Return the tables of the page, by their names."""
    return {"paths": paths(load()["runs"])}


def sections() -> dict[str, tuple[str, str]]:
    """Return what the site shows besides: heading, what the columns mean, table."""
    summary = load()
    counted = json.loads((RESULTS / "instructions.json").read_text())
    return {
        "Times": (
            "The least time of dlx and of what it is compared with, and their ratio in "
            "each Python; for `import dlx` the difference of medians.",
            comparisons(summary["runs"]),
        ),
        "Times on a device": (
            "dlx's own part: tensors claim CUDA where no device is, and the driver "
            "does nothing. Those of torch are CPU tensors whose table claims it; dlx "
            "knows their dispatch keys, which are not those of a CUDA tensor. C by "
            "hand exports one tensor and releases it at once, or views each, asks for "
            "the stream once before and once after, and packs addresses. The last "
            "columns count how often a call of dlx asks the library for its stream, "
            "and calls the driver.",
            comparisons(summary["device"]),
        ),
        "Instructions": (
            "Per call: those in dlx's extension without its callees, all of the "
            "process, and all of the statement in the last column.",
            instructions(counted),
        ),
        "Functions of dlx": (
            "Those with at least a twentieth of a path's instructions in dlx. Inlined "
            "code counts for the function that it was inlined into.",
            functions(counted),
        ),
        "Pairs of libraries": (
            "Instructions of `dlx.convert(x, to)`, `x` of the row's library and `to` "
            "the column's, divided by those of the consumer's own import of `x`; in "
            "brackets without what dlx executes itself. `x` has 4 by 6 elements of "
            "float32, of pyarrow 24. A cell is empty where the consumer cannot import "
            "`x`.",
            pairs(json.loads((RESULTS / "pairs.json").read_text())),
        ),
        "How costs grow": (
            "Columns are numbers of arguments, dimensions, types, threads that share "
            "the GIL, and live objects; of copies, libraries. `types` imports "
            "instances of that many classes in turn. `live` keeps that many tensors of "
            "one array, or capsules of one tensor. Copies are of 64 MiB, and include "
            "page faults of the new memory.",
            growth(summary["scaling"]),
        ),
        "Without a GIL": (
            "Columns are numbers of threads, which have an object each or share one. "
            "Measured on 3.13t with the line changed by which PyO3 refuses it.",
            parallel(summary["free-threads"]),
        ),
    }


def tables() -> str:
    """Return the site's page of all that was measured, as Markdown."""
    parts = [INTRODUCTION]
    parts += [f"## {name}\n\n{a}\n\n{b}" for name, (a, b) in sections().items()]
    return "\n".join(parts)


def page(text: str) -> str:
    """Return the page with tables of the current results."""
    made = blocks()
    return BLOCK.sub(lambda block: f"{block[1]}{made[block[2]]}{block[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    for picture in pictures(load()):
        picture.file.write_text(svg(picture))
