"""A conformance suite for DLPack: what of its requirements a library meets.

`python -m dlx check TARGET` is the command; this is what it uses, and what a program
may use. `run` runs the suite against a target and returns a `Report`, of `Result`s; the
form of a report in a file is described in `dlx.check.results`, that of a target in
`dlx.check.target`.

    from dlx.check import Target, run, select

    report = run("mylib.dlpack:target", select(role="consumer"))
    for result in report.results:
        print(result.check, result.result, result.text)
    raise SystemExit(report.exit_code)

Nothing of this is imported with dlx. The target is imported in other processes only.
"""

from dlx.check.cases import Case, cases
from dlx.check.results import CutOff, Header, Report, Result
from dlx.check.run import run, select
from dlx.check.target import CannotCheck, Target

__all__ = [
    "CannotCheck",
    "Case",
    "CutOff",
    "Header",
    "Report",
    "Result",
    "Target",
    "cases",
    "run",
    "select",
]
