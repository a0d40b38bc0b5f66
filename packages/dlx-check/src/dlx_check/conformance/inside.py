"""The checks in this process, to attach a debugger: nothing is isolated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlx_check.conformance.isolate import Batch
from dlx_check.conformance.target import CannotCheck
from dlx_check.conformance.zygote import _checks
from dlx_check.errors import described

__all__ = ["Inside"]


class _Lines:
    """Takes lines as a journal does."""

    def __init__(self, each: Callable[[dict[str, Any]], None]) -> None:
        """Call `each` with each line."""
        self.lines: list[dict[str, Any]] = []
        self._each = each

    def write(self, line: dict[str, Any]) -> None:
        """Add a line."""
        self.lines.append(line)
        self._each(line)


class Inside:
    """What `Zygote` is, without another process: a crash of the target ends this one.

    A target that hangs is not ended, and `silence` is ignored.
    """

    def __init__(self, target: str) -> None:
        """Import the target."""
        self._answer: dict[str, Any] = {}
        try:
            self._work: Callable[[Any, Any], None] = _checks(
                target, self._answer, (KeyboardInterrupt,)
            )
        except (Exception, SystemExit) as error:
            self._answer = {"cannot": described(error)}

    def answer(self) -> dict[str, Any]:
        """Return what the target says of itself, or why it "cannot"."""
        return self._answer

    def run(
        self,
        work: Any,
        silence: float,
        each: Callable[[dict[str, Any]], None] = lambda line: None,
    ) -> Batch:
        """Run checks, and call `each` with lines as they come."""
        journal = _Lines(each)
        try:
            self._work(work, journal)
        except (Exception, SystemExit) as error:
            raise CannotCheck(f"its setup raises {described(error)}") from error
        journal.write({"end": True})
        return Batch(journal.lines, 0, "")

    def close(self) -> None:
        """Leave everything as it is."""
