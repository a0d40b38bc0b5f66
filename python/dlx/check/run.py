"""Runs the suite against a target: batches, what ended them, and confirmation.

One child runs the checks; where it ends early, the check that it was in gets the
result, and the next child goes on behind it. For whatever is not as required there is
evidence: its reproduction, which runs in a process that cannot import dlx; without one,
the check itself runs again, alone in a fresh child, and that result counts.
"""

from __future__ import annotations

import fnmatch
import platform
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

import dlx
from dlx.check.expect import raising
from dlx.check.isolate import Batch, Zygote
from dlx.check.records import Record
from dlx.check.repro import programs
from dlx.check.requirements import requirements
from dlx.check.results import FAILED, Header, Report, Result
from dlx.check.suite import CHECKS, SUITE
from dlx.check.suite.row import Check
from dlx.check.target import CannotCheck

__all__ = ["judge", "run", "select"]

Seen = dict[str, tuple[str, str, dict[str, Any]]]
"""Result, sentence and record of each check."""


def select(
    only: Sequence[str] = (), role: str = "", level: str = "", suite: str = SUITE
) -> tuple[Check, ...]:
    """Return the checks that are asked for, in the order of the suite.

    `only` has patterns of names, and R-numbers. `suite` leaves newer checks out.
    """

    def wanted(check: Check) -> bool:
        names = check.requirements.split()
        return (
            (not role or check.role == role)
            and (not level or check.level == level)
            and _count(check.since) <= _count(suite)
            and (
                not only
                or any(
                    fnmatch.fnmatchcase(check.id, each) or each in names
                    for each in only
                )
            )
        )

    return tuple(filter(wanted, CHECKS))


def _count(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def judge(check: Check, record: Record) -> tuple[str, str]:
    """Return the result of a check that came to its end, and the sentence."""
    if record.untestable:
        return "untestable", record.untestable
    wrong = check.expects.wrong(record)
    if wrong is not None:
        return "deviates", wrong
    for expectation, text in check.facts:
        if expectation.wrong(record) is None:
            return "fact", text
    if record.raised is not None and not check.expects.of_raising:
        return "untestable", f"not-observable: raises {raising(record)}"
    return "meets", ""


def run(
    target: str,
    checks: Iterable[Check] = CHECKS,
    *,
    confirm: bool = True,
    reproduce: bool = True,
    progress: Callable[[str, int], None] = lambda check, done: None,
) -> Report:
    """Run checks against a target by its name, or `package.module:factory`.

    `progress` gets the check that begins, and how many are done. Raises `CannotCheck`.
    """
    chosen = tuple(checks)
    began = time.monotonic()
    with ExitStack() as ending:
        zygote = Zygote(target)
        ending.callback(zygote.close)
        answer = zygote.answer()
        if "cannot" in answer:
            raise CannotCheck(f"{target}: {answer['cannot']}")
        about, spelled = answer["target"], answer["spelled"]
        limit = about["timeout"]
        other = None
        if confirm and reproduce:
            imports = f"{about['imports']}\n{spelled.get('warm', '')}"
            other = Zygote(imports, blocked=True)
            ending.callback(other.close)
        applies = {c.id: c for c in chosen if c.profile in about["profiles"].split()}
        seen = _all(zygote, applies, limit, progress)
        for name, check in applies.items():
            if seen.get(check.needs, ("meets",))[0] in FAILED:
                seen[name] = ("untestable", f"needs:{check.needs}", {})
        shown: dict[str, tuple[str, str]] = {}
        only_after = set()
        for name, first in [*seen.items()] if confirm else []:
            if first[0] not in (*FAILED, "error"):
                continue
            progress(name, len(seen))
            if other is not None and first[0] in FAILED:
                shown[name] = _shown(other, applies[name], spelled, first, limit)
            if shown.get(name, ("",))[0] != "reproduced":
                alone = _all(zygote, {name: applies[name]}, limit)[name]
                if alone[0] != first[0]:
                    only_after.add(name)
                    shown[name] = ("alone", "")
                seen[name] = alone
    results = []
    for check in chosen:
        result = _result(check, seen.get(check.id))
        if confirm and result.result in FAILED:
            said, text = shown.get(check.id, ("alone", ""))
            result = replace(result, confirmed=said, reproduction=text)
        results.append(replace(result, only_after=check.id in only_after))
    header = Header(
        suite=SUITE,
        target=about["name"],
        version=about["version"],
        dlx=dlx.__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        platform=f"{platform.system()} {platform.machine()}",
        checks=len(chosen),
    )
    return Report(header, tuple(results), round(time.monotonic() - began, 1))


def _shown(
    zygote: Zygote,
    check: Check,
    spelled: dict[str, Any],
    seen: tuple[str, str, dict[str, Any]],
    limit: float,
) -> tuple[str, str]:
    """Run the reproductions of a deviation where dlx cannot be imported.

    Returns "reproduced" and the program that ended as it says, "unconfirmed" and the
    one that ended well, or "alone" if there is no program, or it ended otherwise.
    """
    found = ("alone", "")
    if "cannot" in zygote.answer():
        return found
    result, text, record = seen
    for made in programs(check, spelled, result, text, Record.from_json(record)):
        ending = _ending(zygote.run(made.text, limit))
        if ending == made.ending:
            return "reproduced", made.text
        if not ending:
            found = ("unconfirmed", made.text)
    return found


def _ending(batch: Batch) -> str:
    """Return how a program ended: an exception, a signal, "hangs", or "" if well."""
    if batch.status is None:
        return "hangs"
    if batch.status < 0:
        return signal.Signals(-batch.status).name
    for line in batch.lines:
        if "raised" in line:
            return str(line["raised"]).partition(":")[0]
    return "" if batch.ended else "exit"


def _result(check: Check, seen: tuple[str, str, dict[str, Any]] | None) -> Result:
    source = "the target does not mean to follow"
    result, text, record = seen or ("untestable", f"not-claimed: {source} it", {})
    names = tuple(check.requirements.split())
    first = requirements()[names[0]]
    return Result(
        check=check.id,
        role=check.role,
        requirements=names,
        source=first.source,
        statement=first.statement,
        expected=check.expects.text,
        level=check.level,
        derived=first.derived,
        stimulus=check.stimulus,
        effect=check.effect,
        result=result,
        text=text,
        record=record,
    )


def _all(
    zygote: Zygote,
    checks: dict[str, Check],
    silence: float,
    progress: Callable[[str, int], None] = lambda check, done: None,
) -> Seen:
    """Run checks, with as many children as it takes."""
    seen: Seen = {}
    left = list(checks)
    began = 0

    def heard(line: dict[str, Any]) -> None:
        nonlocal began
        if "start" in line:
            progress(line["start"], began)
            began += 1

    while left:
        batch = zygote.run(left, silence, heard)
        current = step = ""
        for line in batch.lines:
            if "start" in line:
                current, step = line["start"], ""
            elif "step" in line:
                step = line["step"]
            elif "error" in line:
                last = line["error"].strip().splitlines()[-1]
                seen[current] = ("error", last, {"traceback": line["error"]})
            elif "record" in line:
                record = Record.from_json(line["record"])
                seen[current] = (*judge(checks[current], record), line["record"])
        if batch.ended:
            break
        if not current:
            text = f"no check could begin: {_how(batch)}"
            raise CannotCheck(text)
        if current not in seen:
            result = "hangs" if batch.status is None else "crashes"
            text = f"{_how(batch)} while the target {step or 'is prepared'}"
            seen[current] = (result, text, {})
        elif left[-1] == current:
            # All were run, and the process ended after the last.
            seen[current] = ("crashes", f"{_how(batch)} afterwards", {})
        left = left[left.index(current) + 1 :]
    return seen


def _how(batch: Batch) -> str:
    """Say how a child ended, with what it said last."""
    if batch.status is None:
        return "no end"
    if batch.status >= 0:
        return f"the process exits with code {batch.status}"
    said = [line for line in batch.output.splitlines() if line.strip()]
    last = f" ({said[-1].strip()[:160]})" if said else ""
    return f"{signal.Signals(-batch.status).name}{last}"
