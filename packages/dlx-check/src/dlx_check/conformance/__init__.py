"""A conformance suite for DLPack: what of its requirements a library meets.

`python -m dlx check TARGET` is the command; this is what it uses, and what a program
may use. `run` runs the suite against a target and returns a `Report`, of `Result`s; the
form of a report in a file is described in `dlx_check.conformance.results`, that of a
target in `dlx_check.conformance.target`.

    from dlx_check import Target, run, select

    report = run("mylib.dlpack:target", select(role="consumer"))
    for result in report.results:
        print(result.check, result.result, result.text)
    raise SystemExit(report.exit_code)

Nothing of this is imported with dlx. The target is imported in other processes only.
"""

from dlx_check.conformance.cases import Case, cases
from dlx_check.conformance.results import CutOff, Header, Report, Result
from dlx_check.conformance.run import run, select
from dlx_check.conformance.target import CannotCheck, Target

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
