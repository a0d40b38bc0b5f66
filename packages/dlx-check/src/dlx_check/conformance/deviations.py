"""The deviations file: what an adopter knows of, with a reason and a link for each.

    suite = "1.3.0"     # optional: deviations that only newer checks find fail no run
    target = "mylib"    # optional: the library that this file is about

    [[deviation]]
    check = "consumer.copy.true.aligned"    # exact
    result = "deviates"                     # or crashes, hangs
    reason = "copy= is dropped where alignment allows sharing"
    link = "https://github.com/mylib/mylib/issues/1"
    versions = "<0.11"                      # optional, of the target

`find` reads the file, `Deviations.judge` says what each result of a report means for a
run. What cannot be read is refused, so no typo makes a deviation pass.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlx_check.conformance.releases import admits, release, versions
from dlx_check.conformance.result import FAILED, Result
from dlx_check.conformance.results import Report
from dlx_check.conformance.suite import CHECKS, SUITE
from dlx_check.conformance.target import CannotCheck

__all__ = ["FILE", "Deviations", "Entry", "Judgement", "Verdict", "find"]

FILE = "dlpack-deviations.toml"
"""The name of the file, unless `[tool.dlx.check]` of pyproject.toml names another."""

_KEYS = ("check", "result", "reason", "link", "versions")
_SINCE = {check.id: check.since for check in CHECKS}


@dataclass(frozen=True)
class Entry:
    """One deviation that is known."""

    check: str
    result: str
    reason: str = ""
    link: str = ""
    versions: str = ""

    @property
    def lacks(self) -> str:
        """Say what a strict run asks for and the entry has not, if anything."""
        return " and ".join(
            f"no {name}"
            for name in ("reason", "link")
            if not getattr(self, name).strip()
        )


@dataclass(frozen=True)
class Verdict:
    """What one result means for a run."""

    result: Result
    means: str
    """`meets`, `untestable`, `known` (as the file says), `fails`, `newer` (than the
    file's suite), `tolerated` (no MUST, malformed or unconfirmed: fails no run), or
    `error`."""
    entry: Entry | None = None
    complaint: str = ""
    """What a strict run refuses in the entry."""


@dataclass(frozen=True)
class Judgement:
    """What the results of a report mean for a run."""

    verdicts: tuple[Verdict, ...]
    complaints: tuple[str, ...] = ()
    """What a strict run refuses in the file; each names the file and the entry."""

    def those(self, means: str) -> frozenset[str]:
        """Return the names of the checks whose results mean this."""
        return frozenset(v.result.check for v in self.verdicts if v.means == means)

    def exit_code(self, strict: bool) -> int:
        """Return 2 if the suite itself failed, 1 if the run fails, else 0."""
        if self.those("error"):
            return 2
        return int(bool(self.those("fails")) or (strict and bool(self.complaints)))


@dataclass(frozen=True)
class Deviations:
    """A deviations file; the empty one, if there is none."""

    path: str = ""
    suite: str = ""
    target: str = ""
    entries: Mapping[str, Entry] = field(default_factory=dict)
    named: bool = True
    """Whether somebody has named the file; one that was found may be of another
    target."""

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, named: bool = True) -> Deviations:
        """Read a file; raise `CannotCheck` for whatever is not as it should be."""
        try:
            text = Path(path).read_bytes().decode("utf-8")
        except OSError as error:
            raise CannotCheck(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise CannotCheck(f"{path}: not UTF-8, as TOML has to be") from None
        return cls.parse(text, str(path), named=named)

    @classmethod
    def parse(cls, text: str, path: str, *, named: bool = True) -> Deviations:
        """Read the text of a file."""
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise CannotCheck(f"{path}: not TOML: {error}") from None
        entries: dict[str, Entry] = {}
        tables = found.pop("deviation", [])
        if not isinstance(tables, list):
            raise CannotCheck(f"{path}: write [[deviation]], not [deviation]")
        _strings(found, ("suite", "target"), path)
        suite = found.get("suite", "")
        if suite and _release(suite, f"{path}: suite") > _release(SUITE, SUITE):
            raise CannotCheck(
                f"{path}: suite {suite} is newer than {SUITE}, that of this dlx"
            )
        for number, table in enumerate(tables, 1):
            entry = _entry(table, f"{path}: deviation {number}")
            if entry.check in entries:
                raise CannotCheck(f"{path}: {entry.check}: it is there twice")
            entries[entry.check] = entry
        return cls(path, suite, found.get("target", ""), entries, named)

    def of(self, target: str) -> Deviations:
        """Return what the file says of a target, by the target's own name."""
        if self.target in ("", target):
            return self
        if self.named:
            raise CannotCheck(f"{self.path}: it is about {self.target}, not {target}")
        return Deviations()

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return complaints about checks that the suite does not have."""
        return tuple(
            f"{self.path}: {name}: the suite has no such check"
            for name in self.entries
            if name not in _SINCE
        )

    def judge(self, report: Report) -> Judgement:
        """Say what each result of a report means for a run."""
        mine = self.of(report.header.target)
        verdicts = tuple(
            mine.verdict(result, report.header.version) for result in report.results
        )
        found = tuple(v.complaint for v in verdicts if v.complaint)
        return Judgement(verdicts, (*mine.unknown, *found))

    def verdict(self, result: Result, version: str) -> Verdict:
        """Say what one result of a version of the target means."""
        if result.result in ("error", "untestable"):
            return Verdict(result, result.result)
        entry = self.entries.get(result.check)
        if entry is not None and not self._applies(entry, version):
            entry = None
        complaint = ""
        if entry is not None:
            at = f"{self.path}: {entry.check}"
            if result.result == entry.result:
                complaint = f"{at}: it has {entry.lacks}" if entry.lacks else ""
                return Verdict(result, "known", entry, complaint)
            if result.result in FAILED:
                complaint = f"{at}: it {result.result}, the file says {entry.result}"
            else:
                complaint = f"{at}: it no longer {entry.result}: delete the entry"
        means = "meets"
        if result.result in FAILED:
            means = "fails" if result.fails_run else "tolerated"
            since = release(_SINCE.get(result.check, SUITE))
            if self.suite and since > release(self.suite):
                means = "newer"
        return Verdict(result, means, entry, complaint)

    def _applies(self, entry: Entry, version: str) -> bool:
        if not entry.versions:
            return True
        at = f"{self.path}: {entry.check}: the target's version"
        return admits(versions(entry.versions), _release(version, at))

    def adding(self, judgement: Judgement, target: str) -> tuple[str, int]:
        """Return the lines that add what fails the run, and how many entries.

        Checks that the file names, for other versions or with another result, are left
        to whoever wrote that.
        """
        lines: list[str] = []
        if not self.suite and not self.target and not self.entries:
            lines = [f'suite = "{SUITE}"', f'target = "{_plain(target)}"']
        added = [
            verdict.result
            for verdict in judgement.verdicts
            if verdict.means == "fails" and verdict.result.check not in self.entries
        ]
        for result in added:
            lines += [
                "",
                "[[deviation]]",
                f'check = "{result.check}"  # {_plain(result.text)}',
                f'result = "{result.result}"',
                'reason = ""',
                'link = ""',
            ]
        return "".join(f"{line}\n" for line in lines), len(added)

    def write(self, judgement: Judgement, target: str) -> int:
        """Add what fails the run to the file, with empty reasons; return how many."""
        path = Path(self.path)
        old = path.read_bytes().decode("utf-8") if path.exists() else ""
        text, count = self.adding(judgement, target)
        if not count:
            return 0
        if old and not old.endswith("\n"):
            text = f"\n{text}"
        try:
            Deviations.parse(old + text, self.path)
        except CannotCheck:
            raise CannotCheck(
                f"{path}: entries cannot be added to it; write it with [[deviation]]"
            ) from None
        try:
            with open(path, "a", encoding="utf-8", newline="") as file:
                file.write(text)
        except OSError as error:
            raise CannotCheck(f"{path}: {error.strerror}") from None
        return count


def find(given: str | os.PathLike[str] | None, folder: Path) -> Deviations:
    """Read the file that is given, or that of a folder; empty, if it has none."""
    if given is not None:
        return Deviations.read(given)
    project = folder / "pyproject.toml"
    if project.is_file():
        try:
            found = tomllib.loads(project.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise CannotCheck(f"{project}: {error}") from None
        tool = found.get("tool", {})
        dlx = tool.get("dlx", {}) if isinstance(tool, dict) else {}
        table = dlx.get("check", {}) if isinstance(dlx, dict) else {}
        at = f"{project}: [tool.dlx.check]"
        if not isinstance(table, dict):
            raise CannotCheck(f"{at}: it is no table")
        _strings(table, ("deviations",), at)
        if "deviations" in table:
            return Deviations.read(folder / table["deviations"], named=False)
    file = folder / FILE
    return Deviations.read(file, named=False) if file.is_file() else Deviations()


def _entry(table: Any, at: str) -> Entry:
    if not isinstance(table, dict):
        raise CannotCheck(f"{at}: it is no table")
    _strings(table, _KEYS, at)
    for name in ("check", "result"):
        if not table.get(name):
            raise CannotCheck(f"{at}: it has no {name}")
    entry = Entry(**table)
    at = f"{at} ({entry.check})"
    if re.search(r"[*?\[\]]", entry.check):
        raise CannotCheck(f"{at}: a pattern; name each check")
    if entry.result not in FAILED:
        raise CannotCheck(f"{at}: result {entry.result!r} is none of {_list(FAILED)}")
    try:
        versions(entry.versions)
    except ValueError as error:
        raise CannotCheck(f"{at}: versions: {error}") from None
    return entry


def _strings(table: Mapping[str, Any], names: tuple[str, ...], at: str) -> None:
    """Refuse keys that are not known, and values that are no text."""
    for name, value in table.items():
        if name not in names:
            raise CannotCheck(f"{at}: no key {name!r}; there are {_list(names)}")
        if not isinstance(value, str):
            raise CannotCheck(f"{at}: {name} is no text")


def _release(version: str, at: str) -> tuple[int, ...]:
    try:
        return release(version)
    except ValueError as error:
        raise CannotCheck(f"{at}: {error}") from None


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _plain(text: str) -> str:
    """Return text that may stand in a comment, or between quotes."""
    kept = (c if c.isprintable() and c not in '"\\' else " " for c in text)
    return "".join(kept)
