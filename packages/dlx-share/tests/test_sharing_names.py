"""Names of shared memory, and `python -m dlx shm`."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from dlx._core import LinkedFile
from dlx_share.sharing import _names
from support.command_line import ABSENT, run, run_with
from support.optional_libraries import requires
from support.shared_memory import (
    ARRAY,
    BEGIN,
    alone,
    child,
    kill,
    names,
    open_files,
    told,
)

NAME = f"test-{os.getpid()}"
PATH = f"/dev/shm/dlx-{os.geteuid()}-{NAME}"
OWNER = f"h = dlx.share(np.arange(3), name={NAME!r})\ntell()\nfor _ in into: tell()"


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with alone():
        yield


def test_a_name_leads_to_the_memory() -> None:
    """README.md, Names: from another process, for any library."""
    torch = requires("torch")
    with dlx.share(ARRAY, name=NAME) as h:
        mine = dlx.attach(h, like=torch)
        with child(f"dlx.attach('shm:{NAME}', like=np)[0, 0] = 7\ntell()") as process:
            told(process)
        assert mine[0, 0] == 7
        assert dlx.attach(f"shm:{NAME}").data_ptr == mine.data_ptr()


def test_memory_gets_a_name_without_a_copy() -> None:
    """README.md, Names: of `dlx.empty(shared=True)`, and of a file."""
    x = dlx.empty(3, "bfloat16", shared=True)
    with dlx.share(x, copy=False, name=NAME):
        assert dlx.attach(f"shm:{NAME}").data_ptr == x.data_ptr


def test_a_file_gets_a_name(tmp_path: Path) -> None:
    """README.md, Names: only this user can have named it."""
    x = np.memmap(tmp_path / "numbers", "f8", "w+", shape=(4,))
    with dlx.share(x, copy=False, name=NAME):
        x[2] = 7
        assert dlx.attach(f"shm:{NAME}").tolist() == [0, 0, 7, 0]


def test_a_name_is_private_to_the_user_and_ends_with_the_handle() -> None:
    """README.md, Names: mode 0600, unlinked by `close`."""
    files = open_files()
    h = dlx.share(ARRAY, name=NAME)
    assert os.stat(PATH).st_mode & 0o777 == 0o600
    h.close()
    assert not os.path.exists(PATH)
    assert open_files() == files
    with pytest.raises(BufferError, match="No such file"):
        dlx.attach(f"shm:{NAME}")


def test_a_name_is_found_whatever_the_umask() -> None:
    """README.md, Names: its file has mode 0600 under any."""
    before = os.umask(0o777)
    try:
        with dlx.share(ARRAY, name=NAME):
            assert dlx.attach(f"shm:{NAME}").tolist() == ARRAY.tolist()
    finally:
        os.umask(before)


def test_a_name_ends_with_the_last_reference_and_at_exit() -> None:
    """README.md, Names: not only by `close`."""
    h = dlx.share(ARRAY, name=NAME)
    del h
    assert not os.path.exists(PATH)
    code = f"{BEGIN}h = dlx.share(np.arange(3), name={NAME!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not os.path.exists(PATH)


def test_a_name_in_use_is_refused() -> None:
    """README.md, Names: and stays with its owner."""
    files = open_files()
    with dlx.share(ARRAY, name=NAME):
        with pytest.raises(FileExistsError, match="in use") as refused:
            dlx.share(ARRAY + 1, name=NAME)
        assert (refused.value.errno, refused.value.filename) == (errno.EEXIST, NAME)
        assert dlx.attach(f"shm:{NAME}").tolist() == ARRAY.tolist()
    assert open_files() == files


def test_memory_that_gets_no_name_is_given_back() -> None:
    """README.md, Names: at once, not with the exception."""
    with dlx.share(ARRAY, name=NAME):
        files = open_files()
        with pytest.raises(FileExistsError) as refused:
            dlx.share(ARRAY, name=NAME)
        assert open_files() == files
        assert refused.tb is not None


@pytest.mark.parametrize("name", ["", "a/b", "a\0b", "é" * 101, "../x"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    """README.md, Names: nothing outside of the folder."""
    with pytest.raises(ValueError, match="expected 1 to 200 bytes without '/'"):
        dlx.share(ARRAY, name=name)
    with pytest.raises(ValueError, match="expected 1 to 200 bytes without '/'"):
        dlx.attach(f"shm:{name}")


@pytest.mark.parametrize("name", [5, b"x", Path("x")])
def test_a_name_is_a_str(name: Any) -> None:
    """README.md, Names: the message says what was found."""
    with pytest.raises(TypeError, match=r"the name is .*; expected a str"):
        dlx.share(ARRAY, name=name)


def test_a_name_has_a_scheme() -> None:
    """README.md, Names: paths are not taken for one."""
    with pytest.raises(ValueError, match="expected 'shm:NAME'"):
        dlx.attach(PATH)


def test_a_fork_leaves_the_name_to_its_owner() -> None:
    """README.md, Names: the end of a child does not remove it."""
    code = f"""
h = dlx.share(np.arange(3), name={NAME!r})
if (pid := os.fork()) == 0:
    h.close()
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
tell(dlx.attach('shm:{NAME}').tolist())
h.close()
"""
    with child(code) as process:
        assert told(process) == [0, 1, 2]
        process.wait()
    assert not os.path.exists(PATH)


# What killed owners leave.


def shown(*arguments: str) -> dict[str, Any]:
    """Return what the command line says of the name."""
    document = json.loads(run("shm", "--json", *arguments).stdout)
    found = [each for each in document["names"] if each["name"] == NAME]
    return found[0] if found else {}


def test_the_name_of_a_killed_owner_is_removed_by_the_command_line() -> None:
    """README.md, Names: and no name that somebody holds."""
    with child(OWNER) as process:
        told(process)
        t = dlx.attach(f"shm:{NAME}")
        held = shown("--clean")
        assert (held["state"], held["pid"]) == ("held", process.pid)
        assert (held["dtype"], held["shape"]) == ("int64", [3])
        kill(process)
        with pytest.raises(BufferError, match="is gone"):
            dlx.attach(f"shm:{NAME}")
        assert shown()["state"] == "left"
        assert shown("--clean")["state"] == "removed"
        assert not shown()
        assert not os.path.exists(PATH)
        assert t.tolist() == [0, 1, 2]


def test_a_fork_of_a_killed_owner_does_not_hold_its_name() -> None:
    """README.md, Names: the lock is the owner's alone."""
    code = f"""
h = dlx.share(np.arange(3), name={NAME!r})
if os.fork() == 0:
    into.read()
    os._exit(0)
tell()
into.read()
"""
    with child(code) as process:
        told(process)
        kill(process)
        assert shown("--clean")["state"] == "removed"


def test_the_name_of_a_killed_owner_can_be_taken() -> None:
    """README.md, Names: a restart needs no cleaning."""
    with child(OWNER) as process:
        told(process)
        kill(process)
        with dlx.share(ARRAY, name=NAME):
            assert dlx.attach(f"shm:{NAME}").tolist() == ARRAY.tolist()
    assert not os.path.exists(PATH)


def test_a_name_appears_complete_and_locked() -> None:
    """README.md, Names: an owner killed before leaves nothing."""
    with dlx.share(ARRAY) as h:
        linked = LinkedFile(PATH, bytes(h))
        assert NAME not in "".join(names())
        assert linked.link()
        (entry,) = (each for each in _names.entries() if each.name == NAME)
        assert entry.is_held
        assert entry.described is not None
        assert entry.described.shape == (2, 3)
        assert not LinkedFile(PATH, b"").link()
        linked.close()
        assert NAME not in "".join(names())


def test_a_name_that_another_file_has_by_now_is_left_alone() -> None:
    """README.md, Names: only what dlx has linked is unlinked."""
    with dlx.share(ARRAY, name=NAME):
        os.unlink(PATH)
        Path(PATH).touch()
    Path(PATH).unlink()


@pytest.mark.parametrize("data", [b"", b"DLXH", bytes(200)])
def test_a_damaged_name_is_refused_listed_and_removed(data: bytes) -> None:
    """README.md, Names: a `BufferError`."""
    Path(PATH).write_bytes(data)
    os.chmod(PATH, 0o600)
    try:
        with pytest.raises(BufferError, match="not the bytes of a"):
            dlx.attach(f"shm:{NAME}")
        assert shown("--clean")["pid"] is None
        assert not os.path.exists(PATH)
    finally:
        Path(PATH).unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_opened_for_a_name(tmp_path: Path, kind: str) -> None:
    """README.md, Security: everybody may write to the folder."""
    with dlx.share(ARRAY) as h:
        (tmp_path / "file").write_bytes(bytes(h))
        if kind == "link":
            os.symlink(tmp_path / "file", PATH)
        elif kind == "pipe":
            os.mkfifo(PATH)
        else:
            os.mkdir(PATH)
        try:
            with pytest.raises(BufferError, match=NAME):
                dlx.attach(f"shm:{NAME}")
            assert not shown("--clean")
        finally:
            (os.rmdir if kind == "folder" else os.unlink)(PATH)


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_a_file_that_others_could_have_linked_is_no_name(
    tmp_path: Path, mode: int
) -> None:
    """README.md, Security: whoever may write to a file may link it, too."""
    scratch = f"/dev/shm/scratch-{os.getpid()}"
    with dlx.share(ARRAY) as h:
        Path(scratch).write_bytes(bytes(h))
    os.chmod(scratch, mode)
    os.link(scratch, PATH)
    try:
        with pytest.raises(BufferError, match=f"mode {mode:o} and 2 links"):
            dlx.attach(f"shm:{NAME}")
        assert not shown("--clean")
        os.unlink(scratch)
        if mode == 0o666:
            with pytest.raises(BufferError, match="mode 666 and 1 links"):
                dlx.attach(f"shm:{NAME}")
    finally:
        Path(scratch).unlink(missing_ok=True)
        Path(PATH).unlink(missing_ok=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_name_that_another_user_made_is_refused() -> None:
    """README.md, Security: everybody may write to the folder."""
    with dlx.share(ARRAY) as h:
        Path(PATH).write_bytes(bytes(h))
    os.chown(PATH, 65534, 65534)
    try:
        with pytest.raises(BufferError, match="of another user"):
            dlx.attach(f"shm:{NAME}")
        assert not shown("--clean")
        with pytest.raises(FileExistsError):
            dlx.share(ARRAY, name=NAME)
    finally:
        os.unlink(PATH)


def test_the_command_line_shows_a_table_with_and_without_rich() -> None:
    """README.md, Names."""
    with dlx.share(ARRAY, name=NAME):
        for result in run("shm"), run_with("shm", rich=ABSENT):
            assert (result.returncode, result.stderr) == (0, "")
            (row,) = (line for line in result.stdout.splitlines() if NAME in line)
            assert row.split()[1:4] == ["held", str(os.getpid()), "float64"]
