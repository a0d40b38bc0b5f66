"""Write the tables of `docs/performance.md` and its picture from `benches/results`.

    python benches/report.py

A table stands between `<!-- begin NAME -->` and `<!-- end -->`; the rest of the page is
written by hand.
"""

import json
import re

from instruction_paths import FLOORS, PATHS
from plot import PICTURE, chosen, draw
from results import RESULTS, Document, newest

PAGE = PICTURE.with_name("performance.md")
BLOCK = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: list[str], lines: list[list[str]]) -> str:
    """Write a table; all columns but the first hold numbers."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *lines))


def where(about: Document) -> str:
    """Say where, when and with what numbers were taken."""
    versions = ", ".join(f"{k} {v}" for k, v in about["versions"].items() if v)
    return (
        f"{about['cpu']}, {about['cores']} cores, {about['system']}; "
        f"Python {about['python']}, {versions}; {about['date'][:10]}, "
        f"load average {about['load_average']:.1f}; `{about['command']}`.\n\n"
    )


def ns(side: Document) -> str:
    """The least time of a side."""
    if "ns" not in side:
        return "-"
    value = side["ns"]["minimum"]
    if value >= 1e5:
        return f"{value / 1e6:.2f} ms"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def number(value: float) -> str:
    """A measured number with three digits, or all before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def ratio(row: Document) -> str:
    """The ratio, or the difference in ms."""
    if row["value"] is None:
        return "-"
    unit = "" if row["measure"] == "ratio" else " ms"
    return f"{row['value']:.2f}{unit}"


def budgets(runs: Document) -> str:
    """Each path that has a budget, in every Python."""
    main = chosen(runs)
    others = [run for run in runs["runs"].values() if run is not main]
    name = ".".join(main["machine"]["python"].split(".")[:2])
    head = ["path", "dlx", "compared with", "its", f"ratio, {name}"]
    head += [".".join(each["machine"]["python"].split(".")[:2]) for each in others]
    head += ["budget", ""]
    by_name = [
        {(row["path"], row["theirs"]["name"]): row for row in run["rows"]}
        for run in others
    ]
    lines = []
    for row in main["rows"]:
        if row["budget"] is None:
            continue
        key = (row["path"], row["theirs"]["name"])
        line = [row["path"], ns(row["ours"]), key[1], ns(row["theirs"]), ratio(row)]
        line += [ratio(rows[key]) if key in rows else "-" for rows in by_name]
        lines.append([*line, f"{row['budget']:g}", row["verdict"]])
    met = sum(line[-1] == "met" for line in lines)
    judged = sum(bool(line[-1]) for line in lines)
    return where(main["machine"]) + table(head, lines) + f"\n{met} of {judged} met.\n"


def rest(runs: Document) -> str:
    """What a user could pick instead, without a budget."""
    lines = [
        [
            row["path"],
            ns(row["ours"]),
            row["theirs"]["name"],
            ns(row["theirs"]),
            ratio(row),
        ]
        for row in chosen(runs)["rows"]
        if row["budget"] is None and "copy" not in row["path"]
    ]
    return table(["path", "dlx", "compared with", "its", "ratio"], lines)


def instructions(counted: Document) -> str:
    """Instructions of each path."""
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
    """The functions of dlx that a path spends most in."""
    lines = []
    for name, each in counted["paths"].items():
        most = (f"`{function}` {k:.0f}" for function, k in each["functions"].items())
        lines.append(f"- {name}: {', '.join(most)}\n")
    return "".join(lines)


def growth(scaling: Document) -> str:
    """How each cost grows, one table for each part."""
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


def free_threads() -> str:
    """What several threads gain without a GIL, where it has been measured."""
    try:
        measured = json.loads(newest("-free-threads").read_text())
    except FileNotFoundError:
        return "Not measured yet: `make free-threaded` does it.\n"
    gil = "with a GIL" if measured["machine"]["gil"] else "without a GIL"
    return growth(measured).replace("; Python ", f"; {gil}, Python ", 1)


def blocks() -> dict[str, str]:
    """Every table of the page, by its name."""
    runs = json.loads(newest().read_text())
    counted = json.loads((RESULTS / "instructions.json").read_text())
    return {
        "budgets": budgets(runs),
        "rest": rest(runs),
        "instructions": instructions(counted),
        "functions": functions(counted),
        "growth": growth(json.loads(newest("-scaling").read_text())),
        "parallel": free_threads(),
    }


def page(text: str) -> str:
    """The page with its tables as the results are."""
    made = blocks()
    return BLOCK.sub(lambda block: f"{block[1]}{made[block[2]]}{block[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    draw(chosen(json.loads(newest().read_text())), PICTURE)
