"""The zygote: imports one target, and forks a child for each command.

It uses the standard library alone, and is run as a file: reproductions run in a zygote
that has never imported dlx. A child writes what it does to a journal in shared memory,
which outlives every way in which a child can end, closed descriptors included.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import resource
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["JOURNAL", "Journal", "serve"]

JOURNAL = 1 << 24
"""Bytes of a journal."""


class Journal:
    """Lines of JSON in shared memory: a length, then the text."""

    def __init__(self, path: str) -> None:
        """Map the file at `path`, which has the size of a journal."""
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), JOURNAL)
        self._read = 8

    def write(self, line: dict[str, Any]) -> None:
        """Add a line; the length changes last, so a reader sees whole lines."""
        text = json.dumps(line).encode() + b"\n"
        end = max(int.from_bytes(self._map[:8], "little"), 8)
        self._map[end : end + len(text)] = text
        self._map[:8] = (end + len(text)).to_bytes(8, "little")

    def lines(self) -> Iterator[dict[str, Any]]:
        """Give the lines that came since the last call."""
        end = int.from_bytes(self._map[:8], "little")
        if end > self._read:
            text = self._map[self._read : end]
            self._read = end
            for line in text.splitlines():
                yield json.loads(line)


def serve(target: str, descriptor: int, blocked: bool) -> None:
    """Import the target, and fork a child for each command that comes.

    With `blocked`, `target` is statements that import it, dlx cannot be imported, and
    commands are programs.
    """
    wire = socket.socket(fileno=descriptor)
    reader = wire.makefile("r")
    answer: dict[str, Any] = {}
    try:
        work = _programs(target) if blocked else _checks(target, answer)
    except BaseException as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        answer = {"cannot": text}
    gc.collect()
    gc.freeze()
    _send(wire, answer)
    if "cannot" in answer:
        os._exit(0)
    for line in reader:
        command = json.loads(line)
        child = os.fork()
        if child == 0:
            wire.close()
            _child(command, work)
        _send(wire, {"pid": child})
        _, status = os.waitpid(child, 0)
        _send(wire, {"status": os.waitstatus_to_exitcode(status)})
    os._exit(0)


def _send(wire: socket.socket, line: dict[str, Any]) -> None:
    wire.sendall(json.dumps(line).encode() + b"\n")


def _checks(name: str, answer: dict[str, Any]) -> Callable[[Any, Journal], None]:
    from dataclasses import fields

    from dlx.check.target import load

    target = load(name)
    exec(target.warm, target.names)
    answer["target"] = {
        name: getattr(target, name)
        for name in ("name", "version", "imports", "setup", "profiles", "timeout")
    }
    values = {field.name: getattr(target, field.name) for field in fields(target)}
    answer["spelled"] = {n: v for n, v in values.items() if isinstance(v, str)}
    for kinds in ("tensors", "cannot_export"):
        answer["spelled"][kinds] = {
            name: text for name, text in values[kinds].items() if isinstance(text, str)
        }

    def work(ids: Any, journal: Journal) -> None:
        from dlx.check.experiments import Lab, Untestable
        from dlx.check.records import Record
        from dlx.check.suite import CHECKS

        checks = {check.id: check for check in CHECKS}
        if target.setup:
            exec(target.setup, target.names)
        for each in ids:
            journal.write({"start": each})
            lab = Lab(target, lambda text: journal.write({"step": text}))
            try:
                record = checks[each].experiment.run(lab)
            except Untestable as reason:
                record = Record(untestable=str(reason))
            except Exception:
                journal.write({"error": traceback.format_exc()})
                continue
            journal.write({"record": record.to_json()})

    return work


class _Blocked:
    """Makes dlx impossible to import."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        """Refuse dlx."""
        if name.partition(".")[0] == "dlx":
            raise ImportError("dlx cannot be imported here")


def _programs(imports: str) -> Callable[[Any, Journal], None]:
    sys.meta_path.insert(0, _Blocked)
    exec(imports, {})

    def work(program: Any, journal: Journal) -> None:
        try:
            exec(compile(program, "reproduction.py", "exec"), {"__name__": "__main__"})
        except BaseException as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            journal.write({"raised": text})

    return work


def _child(command: dict[str, Any], work: Callable[[Any, Journal], None]) -> None:
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open(command["output"], "ab") as output, open(os.devnull, "rb") as null:
            os.dup2(null.fileno(), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        journal = Journal(command["journal"])
        process = os.getpid()
        work(command["work"], journal)
        if os.getpid() == process:
            journal.write({"end": True})
        code = 0
    finally:
        os._exit(code)
