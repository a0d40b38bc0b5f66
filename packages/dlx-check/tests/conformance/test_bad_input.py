"""What cannot be checked: one line, exit code 2, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dlx_check.cli import main
from dlx_check.conformance import isolate

ONLY = ["--only", "consumer.deleter.null,producer.capsule.name"]
HOSTILE = "conformance.hostile"


def processes(mark: str) -> set[int]:
    """Return the processes that have an environment variable of this value."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_text():
                found.add(int(entry.name))
    return found - {os.getpid()}


def ended(mark: str) -> bool:
    """Wait until there is no such process."""
    for _ in range(200):
        if not processes(mark):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Demand that no file and no process is left behind; give a mark of processes."""
    mark = f"TMPDIR={tmp_path}"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("CI", raising=False)
    yield mark
    assert ended(mark)
    assert not list(tmp_path.glob("dlx-check-*"))


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nothing", "no target 'nothing'"),
        ("nowhere:target", "ModuleNotFoundError: No module named 'nowhere'"),
        (f"{HOSTILE}:missing", "AttributeError"),
        (f"{HOSTILE}:raising", "RuntimeError: on purpose"),
        (f"{HOSTILE}:ending", "it ended the process"),
        (f"{HOSTILE}:leaving_at_once", "SystemExit: 0"),
        (f"{HOSTILE}:closing_at_once", "it ended the process"),
        (f"{HOSTILE}:wrong", "returns int, not a Target"),
        (f"{HOSTILE}:wrong_field", "Target(tensors=None) is not a dict"),
        (f"{HOSTILE}:wrong_profile", "has ['array-apy']; expected some of dlpack"),
        (f"{HOSTILE}:wrong_kind", "has ['readonly']; expected some of read-only"),
        (f"{HOSTILE}:wrong_name", "names no folder"),
        (f"{HOSTILE}:misspelled_field", "id you mean 'address'?\n"),
        (f"{HOSTILE}:misspelled_address", "no attribute 'dat'; did you mean 'data'?"),
        (f"{HOSTILE}:misspelled_method", "x.item') returns a builtin_function_or_me"),
        (f"{HOSTILE}:misspelled_type", "has no attribute 'ndaray'"),
        (f"{HOSTILE}:instance_as_type", "is a ndarray; expected a class"),
        (f"{HOSTILE}:shown_as_list", "returns a list; expected an array of NumPy"),
        (f"{HOSTILE}:misspelled_tensor", "has no attribute 'frozzen'"),
        (f"{HOSTILE}:misspelled_keyword", "['copi']; expected some of device, copy"),
        (f"{HOSTILE}:unclosed", "make='np.array(') raises SyntaxError"),
        (f"{HOSTILE}:raising_show", "x)') raises TypeError: only "),
        (f"{HOSTILE}:misspelled_make", "no attribute 'aray'; did you mean 'array'?"),
        (f"{HOSTILE}:misspelled_take", "is not defined; did you mean 'hostile'?"),
        (f"{HOSTILE}:number_as_function", "is a int; expected a function"),
        (f"{HOSTILE}:many_dimensions", "dimensions=70); expected 0 to 8"),
        (f"{HOSTILE}:no_dimensions", "dimensions=-1); expected 0 to 8"),
        (f"{HOSTILE}:misspelled_function", "attribute 'cpy'; did you mean 'copy'?"),
        (f"{HOSTILE}:raising_view", "view='lambda x: 1 / 0') raises ZeroDivisionErr"),
        (f"{HOSTILE}:number_as_view", "returns a int; expected a view of the tensor"),
        (f"{HOSTILE}:unquoted_cpu", "'cpu' is not defined; expected an expression"),
        (f"{HOSTILE}:wrong_cpu", "Target(cpu=7) is not text"),
        (f"{HOSTILE}:wrong_free", "Target(free=7) is not text"),
        (f"{HOSTILE}:misspelled_free", "no attribute 'fre'; expected statements that"),
        (f"{HOSTILE}:wrong_change", "'nothing' is not defined; expected statements"),
        (f"{HOSTILE}:unnamed_kind", "tensors={3: '3'}) is not a kind and an express"),
        (f"{HOSTILE}:number_as_kind", "cannot_export={'objects': 3}) is not a kind"),
        (f"{HOSTILE}:raising_kinds", "'1 / 0'}) raises ZeroDivisionError: division"),
        (f"{HOSTILE}:numbers_as_tensors", "}) is a int, which is no tensor"),
        (f"{HOSTILE}:class_as_tensor", "'np.ndarray'}) is a type, which is no tensor"),
        (
            f"{HOSTILE}:no_profile",
            "profiles='') names none; expected some of dlpack, a",
        ),
        (
            f"{HOSTILE}:idle_write",
            "leaves the first element at 1.0; expected a",
        ),
        (f"{HOSTILE}:arity_of_make", "make='lambda: 3') takes (); expected (array)"),
        (
            f"{HOSTILE}:arity_of_write",
            "'lambda x: 3') takes (x); expected (tensor, val",
        ),
        (f"{HOSTILE}:arity_of_take_on", "takes (x); expected (tensor, stream)"),
        (
            f"{HOSTILE}:null_address",
            "address='lambda x: 0') returns 0; expected the add",
        ),
        (
            f"{HOSTILE}:wild_address",
            "returns 16, where no memory is; expected the addr",
        ),
        (f"{HOSTILE}:number_as_writable", "returns a int; expected True or False"),
        (
            f"{HOSTILE}:never_writable",
            "returns False for what `write` changes; expected ",
        ),
        (
            f"{HOSTILE}:always_writable",
            "returns True for tensors['read-only']; expected",
        ),
        (
            f"{HOSTILE}:writable_frozen",
            "returns True for what `write` refuses: ValueErr",
        ),
        (f"{HOSTILE}:wrong_setup", "RuntimeError: no runtime"),
        (f"{HOSTILE}:killing_parent", "the process that forks for the target has"),
    ],
)
def test_a_target_that_cannot_be_checked_is_one_line(
    nothing_left: str, capsys: pytest.CaptureFixture[str], target: str, says: str
) -> None:
    """README.md: exit code 2, could not run."""
    assert main(["check", target, *ONLY]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert said.err.count(" you mean") <= 1
    assert said.out == ""


@pytest.mark.parametrize(
    "target", ["printing", "forking_at_once", "spawning", "slow", "raising_address"]
)
def test_what_a_factory_does_beside_its_work_is_borne(
    nothing_left: str, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    """README.md: it prints, forks, starts processes and threads, or takes long."""
    assert main(["check", f"{HOSTILE}:{target}", *ONLY]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "noise" not in said.out


def test_an_import_without_an_end_is_ended(
    nothing_left: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """README.md: a target has two minutes for its import."""
    assert isolate.IMPORT == 120
    monkeypatch.setattr(isolate, "IMPORT", 1.0)
    assert main(["check", f"{HOSTILE}:endless", *ONLY]) == 2
    assert "no end of the import in 1 s" in capsys.readouterr().err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process(
    tmp_path: Path, how: signal.Signals
) -> None:
    """README.md, How it works: the children end with the process that runs them."""
    (tmp_path / "stuck.py").write_text(STUCK)
    mark = f"TMPDIR={tmp_path}"
    command = [sys.executable, "-m", "dlx", "check", "stuck:target", *ONLY]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    # A shell has its background jobs, and so these tests, ignore SIGINT.
    run = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not (tmp_path / "stuck").exists():
        assert run.poll() is None
        time.sleep(0.05)
    assert len(processes(mark)) >= 3
    run.send_signal(how)
    assert run.wait() == -how
    assert ended(mark)
    if how == signal.SIGINT:
        assert not list(tmp_path.glob("dlx-check-*"))


STUCK = """
import pathlib, time
from dlx_check import Target

def take(x):
    pathlib.Path("stuck").touch()
    time.sleep(1000)

def target():
    return Target(name="stuck", imports="import stuck", take="stuck.take",
                  show="np.array", timeout=300)
"""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--suite", "new"], "suite 'new' is no version such as"),
        (["--suite", "0.1"], "no check is selected"),
        (["--only", "consumer.nothing"], "no check 'consumer.nothing'"),
        (["--deviations", "missing.toml"], "missing.toml: No such file"),
        (["--deviations", "."], ".: Is a directory"),
        (["--bisect", "--in-process"], "leave --in-process out"),
        (["--deviations", "a", "--write-deviations", "b"], "leave --deviations out"),
        (["report.json", "--bisect"], "name no report"),
        (["dlx", "--write-deviations", "b"], "name one target"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    nothing_left: str,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    says: str,
) -> None:
    """README.md: exit code 2, before anything runs."""
    assert main(["check", "numpy", *options]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("target", "check", "says"),
    [
        ("raising_kind", "producer.read-only.flag", "tensors['read-only'] raises"),
        ("no_tensor", "producer.kind.strided", "tensors['strided'] is 3, which is no"),
        ("class_for_tensor", "producer.kind.strided", "ndarray'>, which is no tensor"),
    ],
)
def test_a_tensor_that_a_target_cannot_make_passes_no_check(
    capsys: pytest.CaptureFixture[str], target: str, check: str, says: str
) -> None:
    """README.md, Results: an error, of the function that describes the target."""
    assert main(["check", f"{HOSTILE}:{target}", "--only", check]) == 2
    said = capsys.readouterr()
    assert says in said.out + said.err
