"""What DLPack says of objects and libraries: a conformance suite, `inspect`, `trace`.

`python -m dlx check TARGET` is the command of the suite; `run` is what it uses, and
what a program may use. It runs the suite against a target and returns a `Report`, of
`Result`s; the form of a report in a file is described in
`dlx_check.conformance.results`, that of a target in `dlx_check.conformance.target`.

    from dlx_check import Target, run, select

    report = run("mylib.dlpack:target", select(role="consumer"))
    for result in report.results:
        print(result.check, result.result, result.text)
    raise SystemExit(report.exit_code)

The target is imported in other processes only. Each name is imported on first use: the
suite needs NumPy, all else dlx, of the same version.
"""

from __future__ import annotations

from dlx_check.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dlx_check.conformance.cases import Case, cases
    from dlx_check.conformance.results import CutOff, Header, Report, Result
    from dlx_check.conformance.run import run, select
    from dlx_check.conformance.target import CannotCheck, Target
    from dlx_check.inspection import Inspection, inspect
    from dlx_check.testing import check_mixin
    from dlx_check.tracing import Held, Trace, live, trace

__all__ = [
    "CannotCheck",
    "Case",
    "CutOff",
    "Header",
    "Held",
    "Inspection",
    "Report",
    "Result",
    "Target",
    "Trace",
    "__version__",
    "cases",
    "check_mixin",
    "inspect",
    "live",
    "run",
    "select",
    "trace",
]

# Where a name is, if not in `conformance`.
_WHERE = {
    "Held": "tracing",
    "Inspection": "inspection",
    "Trace": "tracing",
    "check_mixin": "testing",
    "inspect": "inspection",
    "live": "tracing",
    "trace": "tracing",
    # What dlx calls: by `python -m dlx`, and for the variable DLX_TRACE.
    "main": "cli",
    "start": "tracing",
}


def __getattr__(name: str) -> object:
    """Import a name on first use."""
    from importlib import import_module

    if name not in (*__all__, *_WHERE):
        if name == "conformance":  # What dlx calls `dlx.check`.
            return import_module("dlx_check.conformance")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_WHERE.get(name, 'conformance')}")
    found: object = getattr(module, name)
    globals()[name] = found
    return found
