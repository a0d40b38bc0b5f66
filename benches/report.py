"""Write the tables of `docs/performance.md` and its picture from the summary.

    python benches/report.py

Each table is between `<!-- begin NAME -->` and `<!-- end -->`; the rest of the page is
written by hand.
"""

import json
import re

from instruction_paths import FLOORS, PATHS
from picture import PICTURE, svg
from results import RESULTS, Document
from summary import load

PAGE = PICTURE.with_name("performance.md")
# The ratio that each pair of libraries should have.
GOAL = 1.1
# What a path should take of the call beside it, or of that beside another path.
GOALS = {
    "dlx.borrow(three torch)": 1.2,
    "dlx.launcher, three torch tensors": 1.0,
    "dlx.empty(like=torch.Tensor)": 1.0,
    "dlx.from_dlpack(jax)": 0.8,
    "dlx.convert(jax, np.ndarray)": 0.9,
    "dlx.convert(ndarray, tvm_ffi.Tensor)": GOAL,
    "dlx.convert(tvm_ffi.Tensor, np.ndarray)": GOAL,
    "dlx.convert(__dlpack__ alone, np.ndarray)": GOAL,
}
BESIDE = {"dlx.from_dlpack(jax)": "dlx.convert(jax, np.ndarray)"}
BLOCK = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: list[str], lines: list[list[str]]) -> str:
    """Format a table; all columns but the first hold numbers."""
    rule = ["---", *["---:"] * (len(head) - 1)]
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


def verdict(row: Document, python: str) -> str:
    """Return whether the budget was met in one Python, as text."""
    value = row["ms" if "ms" in row else "ratio"].get(python)
    if value is None:
        return ""
    return "met" if value <= row["budget"] else "missed"


def budgets(runs: Document) -> str:
    """Format the paths that have a budget, in every Python."""
    main, *others = runs["pythons"]
    head = ["path", "dlx", "compared with", "its", f"ratio, {main}", *others]
    lines = [
        [
            row["path"],
            ns(row["dlx"]),
            row["against"],
            ns(row["its"]),
            *(ratio(row, python) for python in runs["pythons"]),
            f"{row['budget']:g}",
            verdict(row, main),
        ]
        for row in runs["rows"]
        if row["budget"] is not None
    ]
    met = sum(line[-1] == "met" for line in lines)
    judged = sum(bool(line[-1]) for line in lines)
    text = where(runs["machine"]) + table([*head, "budget", ""], lines)
    return f"{text}\n{met} of {judged} met.\n"


def rest(runs: Document) -> str:
    """Format the alternatives, which have no budget."""
    main = runs["pythons"][0]
    lines = [
        [row["path"], ns(row["dlx"]), row["against"], ns(row["its"]), ratio(row, main)]
        for row in runs["rows"]
        if row["budget"] is None and "copy" not in row["path"]
    ]
    return table(["path", "dlx", "compared with", "its", "ratio"], lines)


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


def goals(counted: Document) -> str:
    """Format what paths take of the call that they are compared with."""
    lines = []
    for name, goal in GOALS.items():
        beside = BESIDE.get(name, name)
        every, its = counted["paths"][name]["all"], counted["paths"][beside]["floor"]
        own = counted["paths"][name]["dlx"]
        lines.append(
            [
                name,
                f"`{FLOORS[beside]}`",
                f"{every / its:.2f}",
                f"{(every - own) / its:.2f}",
                f"{goal:g}",
                "met" if every <= goal * its else "missed",
            ]
        )
    return table(["path", "compared with", "ratio", "without dlx", "goal", ""], lines)


def functions(counted: Document) -> str:
    """Format the functions of dlx in which a path spends most."""
    lines = []
    for name, each in counted["paths"].items():
        most = (f"`{function}` {k:.0f}" for function, k in each["functions"].items())
        lines.append(f"- {name}: {', '.join(most)}\n")
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
    above = sum(ratio > GOAL for ratio in ratios)
    without = sum(each["all"] - each["dlx"] > GOAL * each["own"] for each in every)
    versions = ", ".join(f"{k} {v}" for k, v in sorted(counted["versions"].items()))
    return (
        f"{versions}.\n\n"
        + table(["", *consumers], lines)
        + f"\n{len(every)} pairs, median {ratios[len(every) // 2]:.2f}; {above} are "
        f"above {GOAL}, {without} of them even without dlx's part.\n"
    )


def blocks() -> dict[str, str]:
    """Return every table of the page, by its name."""
    summary = load()
    counted = json.loads((RESULTS / "instructions.json").read_text())
    return {
        "budgets": budgets(summary["runs"]),
        "rest": rest(summary["runs"]),
        "instructions": instructions(counted),
        "goals": goals(counted),
        "functions": functions(counted),
        "growth": growth(summary["scaling"]),
        "pairs": pairs(json.loads((RESULTS / "pairs.json").read_text())),
        "parallel": parallel(summary["free-threads"]),
    }


def page(text: str) -> str:
    """Return the page with tables of the current results."""
    made = blocks()
    return BLOCK.sub(lambda block: f"{block[1]}{made[block[2]]}{block[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    PICTURE.write_text(svg(load()["runs"]))
