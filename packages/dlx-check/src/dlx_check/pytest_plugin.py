"""The plugin of pytest: `pytest --dlx-check=mylib.dlpack:target`, and `dlx_trace`.

Each check of the target is an item, `dlx::mylib::consumer.copy.true.aligned`. dlx is
imported only where an option or a test asks for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dlx_check.conformance.cases import Case
    from dlx_check.tracing import Trace

__all__ = ["dlx_trace"]


@pytest.fixture
def dlx_trace(request: pytest.FixtureRequest) -> Iterator[Trace]:
    """Trace the test, which fails if it leaves memory behind that it moved."""
    # Most tests do not use it, and then dlx is not imported.
    from dlx_check import tracing

    failed = request.session.testsfailed
    with tracing.trace() as trace:
        yield trace
    # The traceback of a test that has failed holds its variables.
    if request.session.testsfailed == failed:
        trace.assert_released()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `--dlx-check`."""
    group = parser.getgroup("dlx", "DLPack conformance")
    group.addoption(
        "--dlx-check",
        action="append",
        default=[],
        metavar="TARGET",
        help="check a library: its name, or package.module:factory",
    )
    group.addoption(
        "--dlx-deviations",
        metavar="FILE",
        help="known deviations (default: dlpack-deviations.toml)",
    )
    group.addoption(
        "--dlx-suite",
        metavar="VERSION",
        help="leave out checks that are newer than this suite",
    )


_CASES = pytest.StashKey[dict[str, "list[Case]"]]()


def pytest_configure(config: pytest.Config) -> None:
    """Find the checks of `--dlx-check`; a wrong name or file ends the run here."""
    targets: list[str] = config.getoption("dlx_check")
    if not targets:
        return
    try:
        from dlx_check.conformance import CannotCheck
        from dlx_check.conformance.cases import cases
        from dlx_check.conformance.suite import SUITE
    except ModuleNotFoundError as error:
        raise pytest.UsageError(f"--dlx-check: {error}: pip install numpy") from None
    except ImportError as error:  # natives that were not built say what builds them
        raise pytest.UsageError(f"--dlx-check: {error}") from None
    file: str | None = config.getoption("dlx_deviations")
    folder = os.path.relpath(config.rootpath)
    suite: str = config.getoption("dlx_suite") or SUITE
    found = {}
    try:
        for target in dict.fromkeys(targets):
            found[target] = cases(target, suite=suite, deviations=file, folder=folder)
    except CannotCheck as reason:
        raise pytest.UsageError(f"--dlx-check: {reason}") from None
    config.stash[_CASES] = found


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Add the targets of `--dlx-check` to what the session collects."""
    report = yield
    found = collector.config.stash.get(_CASES, None)
    if found and isinstance(collector, pytest.Session):
        suite = _Suite.from_parent(collector, name="dlx", nodeid="dlx")
        report.result = [*(report.result or []), suite]
    return report


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the batches which of their checks are selected."""
    if "dlx_check.conformance.cases" not in sys.modules:
        return
    from dlx_check.conformance.cases import Case, narrow

    selected = []
    for item in session.items:
        if isinstance(item, _Check):
            selected.append(item.case)
        elif (call := getattr(item, "callspec", None)) is not None:
            selected += [v for v in call.params.values() if isinstance(v, Case)]
    narrow(selected)


class _Suite(pytest.Collector):
    """All targets."""

    def collect(self) -> Iterator[pytest.Collector]:
        """Give a collector for each."""
        found = self.config.stash[_CASES]
        short = [target.partition(":")[0].partition(".")[0] for target in found]
        for target, name in zip(found, short, strict=True):
            # Of two targets of one package, each has its whole name.
            label = target if ":" not in target or short.count(name) > 1 else name
            yield _Target.from_parent(
                self, name=label, nodeid=f"dlx::{label}", cases=found[target]
            )


class _Target(pytest.Collector):
    """The checks of one target."""

    def __init__(self, *, cases: list[Case], **fields: Any) -> None:
        super().__init__(**fields)
        self.cases = cases

    def collect(self) -> Iterator[pytest.Item]:
        """Give an item for each check."""
        grouped = self.config.pluginmanager.hasplugin("xdist")
        for case in self.cases:
            item = _Check.from_parent(self, name=case.__name__, case=case)
            if grouped:
                # One process runs them all, with --dist=loadgroup.
                item.add_marker(pytest.mark.xdist_group(name=f"dlx::{self.name}"))
            yield item


class _Check(pytest.Item):
    """One check of one target."""

    def __init__(self, *, case: Case, **fields: Any) -> None:
        super().__init__(**fields)
        self.case = case

    def runtest(self) -> None:
        """Ask for its result; the first that asks runs all."""
        self.case.check()

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where it is, which is in no file, and its title."""
        target = "" if self.parent is None else self.parent.name
        return self.path / "dlx", None, f"{target}: {self.name} "
