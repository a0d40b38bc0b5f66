"""A run ends as it should, whatever its target does to the process.

`DLX_DISTURBED_EVERY=1` runs all targets, in four minutes, and not the quick ones alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dlx_check import Report

from conformance.test_bad_input import ended

CHECK = "consumer.copy.true.aligned"
START = (
    "import sys; from dlx_check.cli import main; "
    "from dlx_check.conformance import isolate; isolate.IMPORT = 10.0; "
    "sys.exit(main(sys.argv[1:]))"
)
EVERY = os.environ.get("DLX_DISTURBED_EVERY") == "1"

MEETS = 0, ", meets"
HANGS = 1, "hangs: no end while the target imports the probe"


def raises(what: str) -> tuple[int, str]:
    """Return what is expected of a target that answers by an exception."""
    return 0, f"raises {what}"


def refused(what: str) -> tuple[int, str]:
    """Return what is expected of a target that cannot be checked."""
    return 2, what


QUICK = {
    "plain": MEETS,
    "garbage_on_descriptors": MEETS,
    "message_that_raises": raises("Message: (its message raises TypeError)"),
    "message_that_recurses": raises("Message: (its message raises RecursionError)"),
    "raises_keyboard_interrupt": raises("KeyboardInterrupt"),
    "stops_its_parent": MEETS,
    "leaves_an_orphan": MEETS,
    "garbage_while_described": refused("it writes to descriptors that are not its own"),
}

SLOW = {
    "prints_much": MEETS,
    "prints_forever": HANGS,
    "closes_descriptors": MEETS,
    "replaces_descriptors": MEETS,
    "exits_at_once": (1, "crashes: the process exits with code 0"),
    "message_of_terminal_codes": raises(r"Message: \ud800 "),
    "message_of_128_megabytes": raises("Message: xxx"),
    "message_that_exits": raises("Message: (its message raises SystemExit)"),
    "exception_without_a_name": raises("Hidden"),
    "overwrites_shared_memory": (1, "crashes: the target writes over what was seen"),
    "exception_without_attributes": raises("Stubborn"),
    "recurses": raises("RecursionError"),
    "recurses_in_c": raises("RecursionError"),
    "hangs_in_c": HANGS,
    "raises_system_exit": raises("SystemExit"),
    "raises_generator_exit": raises("GeneratorExit"),
    "replaces_the_standard_library": (1, "crashes: the process exits with code 70"),
    "replaces_numpy": MEETS,
    "leaves_a_process": MEETS,
    "leaves_a_thread": MEETS,
    "limits_files": MEETS,
    "limits_memory": MEETS,
    "stops": HANGS,
    "executes": (1, "crashes: the process exits with code 0"),
    "ends_by_a_signal_without_a_name": (1, "crashes: signal 40"),
    "waits_at_exit": MEETS,
    "traces": raises("ZeroDivisionError"),
    "collects_no_garbage": MEETS,
    "moves": MEETS,
    "forgets_modules": MEETS,
    "masks_files": MEETS,
    "traps_arithmetic": (1, "crashes: SIGFPE"),
    "ends_its_group": (1, "crashes: SIGTERM"),
    "names_itself_badly": refused("names no folder of reproductions"),
    "exits_while_described": refused("it ended the process"),
    "raises_what_exits_while_described": refused("its message raises SystemExit"),
    "sleeps_while_described": refused("no end of the import in 10 s"),
    "returns_a_number": refused("returns int, not a Target"),
    "prints_while_described": MEETS,
    "endless_garbage_while_described": refused("it writes to descriptors"),
    "drops_the_status_of_children": MEETS,
    "leaves_a_process_while_described": MEETS,
}


@pytest.mark.parametrize(
    ("target", "expected"), {**QUICK, **(SLOW if EVERY else {})}.items()
)
def test_a_target_that_disturbs_its_process_is_judged_by_its_answers(
    tmp_path: Path, target: str, expected: tuple[int, str]
) -> None:
    """README.md, How it works: a report or one line, and nothing is left behind."""
    code, says = expected
    report, temporary = tmp_path / "report.jsonl", tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", START, "check", f"conformance.disturbed:{target}"]
    run = subprocess.run(
        [*command, "--only", CHECK, "--json", str(report)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        check=False,
        timeout=300,
    )
    error = run.stderr.decode()
    assert ended(f"TMPDIR={temporary}")
    assert not list(temporary.iterdir())
    assert (run.returncode, "Traceback" in error) == (code, False), error
    assert re.fullmatch(r"[\n -~]*", run.stdout.decode())
    assert report.exists() == (code < 2)
    if code == 2:
        assert says in error
        assert error.count("\n") == 1
        return
    [found] = Report.read(report.read_text().splitlines()).results
    raised = found.record.get("raised", {"type": "", "message": ""})
    seen = f"raises {raised['type']}: {raised['message']}"
    assert says in f"{seen}, {found.result}: {found.text}"
    assert found.fails_run == bool(code)
