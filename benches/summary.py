"""Make `results/summary.json`, from which `docs/performance.md` is written.

    python benches/summary.py

Reads what `bench.py`, `device.py`, `scaling.py` and `free_threads.py` wrote to
`build/results`. A part that was not measured stays as it is.
"""

import json
from pathlib import Path
from typing import Any

from results import BUILD, RESULTS, Document

SUMMARY = RESULTS / "summary.json"
WIDTH = 240
"""Maximum length of a line of JSON."""


def chosen(runs: Document) -> str:
    """Return the Python whose times are shown: the one in which most rows ran."""

    def timed(name: str) -> int:
        return sum(row["value"] is not None for row in runs[name]["rows"])

    return max(runs, key=timed)


def comparisons(measured: Document) -> Document:
    """Return the times in one Python, and the ratios in each, that one first."""
    runs = measured["runs"]
    main = chosen(runs)
    pythons = [main, *(name for name in runs if name != main)]
    by_name = {
        name: {(row["path"], row["theirs"]["name"]): row for row in run["rows"]}
        for name, run in runs.items()
    }

    def least(side: Document) -> float | None:
        return side["ns"]["minimum"] if "ns" in side else None

    rows = []
    for key, row in by_name[main].items():
        values = {
            name: by_name[name][key]["value"]
            for name in pythons
            if by_name[name].get(key, {}).get("value") is not None
        }
        rows.append(
            {
                "path": row["path"],
                "dlx": least(row["ours"]),
                "against": row["theirs"]["name"],
                "its": least(row["theirs"]),
                "ratio" if row["measure"] == "ratio" else "ms": values,
                **({"counts": row["counts"]} if "counts" in row else {}),
            }
        )
    return {"machine": runs[main]["machine"], "pythons": pythons, "rows": rows}


def rounded(value: Any) -> Any:
    """Round each number to six digits, more than any table shows."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def check(about: Document) -> None:
    """Refuse partial runs, and runs with `--quick`."""
    for option in ("--only", "--quick"):
        if option in about["command"]:
            raise ValueError(f"not for the summary: `{about['command']}`")


def summarize(before: Document, build: Path = BUILD) -> Document:
    """Replace the parts of a summary that `build` has results for."""
    summary = dict(before)
    for kind in ("runs", "device", "scaling", "free-threads"):
        file = build / f"{kind}.json"
        if file.exists():
            measured = json.loads(file.read_text())
            compares = "runs" in measured
            for each in measured["runs"].values() if compares else [measured]:
                check(each["machine"])
            part = comparisons(measured) if compares else measured
            summary[kind] = rounded(part)
    return summary


def pretty(value: Any, indent: str = "") -> str:
    """Format JSON; what fits on a line stays on it."""
    text = json.dumps(value)
    if len(indent) + len(text) <= WIDTH or not isinstance(value, (dict, list)):
        return text
    inner = indent + "  "
    if isinstance(value, dict):
        items = [f"{json.dumps(k)}: {pretty(v, inner)}" for k, v in value.items()]
    else:
        items = [pretty(each, inner) for each in value]
    body = ",\n".join(inner + item for item in items)
    return f"{text[0]}\n{body}\n{indent}{text[-1]}"


def load() -> Document:
    """Return the committed summary."""
    summary: Document = json.loads(SUMMARY.read_text())
    return summary


if __name__ == "__main__":
    before = load() if SUMMARY.exists() else {}
    SUMMARY.write_text(pretty(summarize(before)) + "\n")
