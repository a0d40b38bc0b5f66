"""Runs the suite against a target: batches, what ended them, and confirmation.

One child runs the checks; where it ends early, the check that it was in gets the
result, and the next child goes on behind it. For whatever is not as required there is
evidence: its reproduction, which runs in a process that cannot import dlx; without one,
the check itself runs again, alone in a fresh child, and that result counts.
"""

from __future__ import annotations

import difflib
import fnmatch
import platform
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from dlx_check.conformance.expect import raising
from dlx_check.conformance.inside import Inside
from dlx_check.conformance.isolate import Batch, Zygote, zygotes
from dlx_check.conformance.meaning import effect, explained
from dlx_check.conformance.records import Record
from dlx_check.conformance.releases import release
from dlx_check.conformance.repro import programs
from dlx_check.conformance.requirements import requirements
from dlx_check.conformance.result import FAILED, Result
from dlx_check.conformance.results import Header, Report
from dlx_check.conformance.structs import UNVERSIONED
from dlx_check.conformance.suite import CHECKS, NOT_CHECKABLE, SUITE
from dlx_check.conformance.suite.row import Check
from dlx_check.conformance.target import CannotCheck
from dlx_check.conformance.targets import load
from dlx_check.held import signal_name
from dlx_check.version import __version__

__all__ = ["judge", "run", "select"]

_NOISE = re.compile(r"\s*(@|\*\*\*|$)")
"""Frames of a trace, and empty lines."""
_PREFIX = re.compile(r"^[IWEF]\d{4} [^\]]*\] ")
"""Time, process and line, before what a Google library says."""

Seen = dict[str, tuple[str, str, dict[str, Any]]]
"""Result, sentence and record of each check."""


def select(
    only: Sequence[str] = (), role: str = "", level: str = "", suite: str = SUITE
) -> tuple[Check, ...]:
    """Return the checks that are asked for, in the order of the suite.

    `only` has patterns of names, and R-numbers. `suite` leaves newer checks out. Raises
    `CannotCheck` for a name that no check has, and proposes others.
    """
    for each in only:
        if not any(_named(check, each) for check in CHECKS):
            raise CannotCheck(f"no check {each!r}{_proposed(each)}")
    try:
        newest = release(suite)
    except ValueError as error:
        raise CannotCheck(f"suite {error}") from None

    def wanted(check: Check) -> bool:
        return (
            (not role or check.role == role)
            and (not level or check.level == level)
            and release(check.since) <= newest
            and (not only or any(_named(check, each) for each in only))
        )

    return tuple(filter(wanted, CHECKS))


def _named(check: Check, name: str) -> bool:
    """Return whether a check has a name, fits a pattern, or tests a requirement."""
    return fnmatch.fnmatchcase(check.id, name) or name in check.requirements.split()


def _proposed(name: str) -> str:
    """Say what could be meant by a name that no check has."""
    for each in NOT_CHECKABLE:
        if name in each.requirements.split():
            return f" of it: {each.reason}"
    names = [check.id for check in CHECKS]
    found = [each for each in names if name and f".{name}." in f".{each}."]
    if not found:
        found = difflib.get_close_matches(name, names, cutoff=0.8)
    return f"; did you mean {', '.join(found[:5])}?" if found else ""


def judge(check: Check, record: Record) -> tuple[str, str]:
    """Return the result of a check that came to its end, and the sentence."""
    if record.untestable:
        return "untestable", record.untestable
    wrong = check.expects.wrong(record)
    if wrong is not None:
        return "deviates", wrong
    if check.expects.of_elements and record.notes.get("not shown"):
        why = record.notes["not shown"]
        return "untestable", f"not-observable: `show` raises {why}"
    struct = record.struct
    if check.expects.of_flags and struct is not None and struct.name == UNVERSIONED:
        return "untestable", "not-observable: an unversioned capsule has no flags"
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
    isolated: bool = True,
    progress: Callable[[str, int], None] = lambda check, done: None,
) -> Report:
    """Run checks against a target by its name, or `package.module:factory`.

    `progress` gets the check that begins, and how many are done. Without `isolated`,
    the checks run in this process, and nothing is confirmed. Raises `CannotCheck`.
    """
    chosen = tuple(checks)
    confirm = confirm and isolated
    began = time.monotonic()
    reproduces = confirm and reproduce
    # Who has described a target of his own has imported dlx with it.
    imports = load(target).statements if ":" not in target and reproduces else ""
    with ExitStack() as ending:
        zygote: Zygote | Inside
        others: list[Zygote] = []
        if isolated:
            zygote, *others = ending.enter_context(zygotes(target, imports))
        else:
            zygote = Inside(target)
            ending.callback(zygote.close)
        answer = zygote.answer()
        if "cannot" in answer:
            said = answer["cannot"].removeprefix(f"{target}: ")
            raise CannotCheck(f"{target}: {said}")
        about, spelled = answer["target"], answer["spelled"]
        limit = about["timeout"]
        for line in zygote.run([], limit).lines:
            # Any other end of this is one of the checks, too.
            if fault := line.get("misspelled"):
                raise CannotCheck(f"{target}: Target({fault}")
        if reproduces and not others:
            others = ending.enter_context(zygotes(imports=about["statements"]))
        other = others[0] if others else None
        applies = {c.id: c for c in chosen if c.profile in about["profiles"].split()}
        seen = _all(zygote, applies, limit, progress)
        for name, check in applies.items():
            if seen.get(check.needs, ("meets",))[0] in FAILED:
                seen[name] = ("untestable", f"needs:{check.needs}", {})
        shown: dict[str, tuple[str, ...]] = {}
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
            said, text, *why = shown.get(check.id, ("alone", ""))
            result = replace(result, confirmed=said, reproduction=text)
            result = replace(result, no_reproduction="".join(why))
        results.append(replace(result, only_after=check.id in only_after))
    if confirm and about["name"] != "numpy":
        results = _beside_numpy(results, chosen)
    header = Header(
        suite=SUITE,
        target=about["name"],
        version=about["version"],
        dlx=__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        platform=f"{platform.system()} {platform.machine()}",
        checks=len(chosen),
    )
    return Report(header, tuple(results), round(time.monotonic() - began, 1))


def _beside_numpy(results: list[Result], checks: Iterable[Check]) -> list[Result]:
    """Mark what NumPy does likewise, by a run of the checks that have failed.

    It is run, because what it does is of its version; that takes about half a second.
    """
    failed = {each.check for each in results if each.result in FAILED}
    if not failed:
        return results
    rows = [check for check in checks if check.id in failed]
    said = {
        (r.check, r.result, r.text) for r in run("numpy", rows, reproduce=False).results
    }
    return [
        replace(each, like_numpy=(each.check, each.result, each.text) in said)
        if each.check in failed
        else each
        for each in results
    ]


def _shown(
    zygote: Zygote,
    check: Check,
    spelled: dict[str, Any],
    seen: tuple[str, str, dict[str, Any]],
    limit: float,
) -> tuple[str, ...]:
    """Run the reproductions of a deviation where dlx cannot be imported.

    Returns "reproduced" and the program that ended as it says, "unconfirmed" and the
    one that ended well, or "alone", nothing and why there is no program.
    """
    if why := zygote.answer().get("cannot"):
        return "alone", "", f"what the target imports needs dlx ({why})"
    found: tuple[str, ...] = ("alone", "", "no short program shows it without dlx")
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
        return signal_name(-batch.status)
    for line in batch.lines:
        if "raised" in line:
            return str(line["raised"]).partition(":")[0]
    return "" if batch.ended else "exit"


def _result(check: Check, seen: tuple[str, str, dict[str, Any]] | None) -> Result:
    source = "the target does not mean to follow"
    result, text, record = seen or ("untestable", f"not-claimed: {source} it", {})
    required, expected = explained(check, result, text, record)
    names = tuple(required.split())
    first = requirements()[names[0]]
    return Result(
        check=check.id,
        role=check.role,
        requirements=names,
        source=first.source,
        statement=first.statement,
        expected=expected,
        level=check.level,
        derived=first.derived,
        stimulus=check.stimulus,
        effect=effect(check, result, text, record),
        result=result,
        text=text,
        record=record,
    )


def _all(
    zygote: Zygote | Inside,
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
        if batch.garbled:
            current = current or left[0]
            seen[current] = ("crashes", "the target writes over what was seen", {})
        elif not current:
            said = [line for line in batch.output.splitlines() if line.strip()]
            why = said[-1].strip()[:160] if said else _how(batch)
            raise CannotCheck(f"no check could begin, because of `setup`: {why}")
        elif current not in seen:
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
    said = [line for line in batch.output.splitlines() if not _NOISE.match(line)]
    last = f" ({_PREFIX.sub('', said[-1].strip())[:160]})" if said else ""
    return f"{signal_name(-batch.status)}{last}"
