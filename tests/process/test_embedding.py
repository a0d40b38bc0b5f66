"""Programs that embed Python: started once or again, with threads that C has made."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from textwrap import dedent

import pytest

SOURCE = Path(__file__).parents[1] / "support" / "embedding.c"
HEADERS = sysconfig.get_path("include")
FOLDER, LIBRARY = (sysconfig.get_config_var(name) for name in ("LIBDIR", "LDLIBRARY"))

pytestmark = [
    pytest.mark.skipif(
        not (Path(HEADERS, "Python.h").exists() and LIBRARY),
        reason="no headers of Python",
    ),
    pytest.mark.skipif(
        not (LIBRARY and ".so" in LIBRARY and Path(FOLDER, LIBRARY).exists()),
        reason="no shared library of Python",
    ),
]

CONVERT = """
    import dlx

    class Mixin(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data):
            self.data = data

    tensor = dlx.from_dlpack(bytearray(b"abc"))
    capsule = tensor.__dlpack__(max_version=(1, 3))
    print(dlx.convert(tensor, Mixin).data.tolist(), dlx.DeviceType.CPU.name)
    """
CONVERTED = "[97, 98, 99] CPU\n"
REFUSED = """
    try:
        import dlx
    except ImportError as error:
        print(error)
    """
MESSAGE = "dlx supports the main interpreter alone, started once\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program with this Python's library."""
    program = tmp_path_factory.mktemp("embedding") / "program"
    libraries = [f"-L{FOLDER}", f"-Wl,-rpath,{FOLDER}"]
    libraries.append(f"-l{LIBRARY.removeprefix('lib').partition('.so')[0]}")
    command = ["cc", "-o", program, SOURCE, f"-I{HEADERS}", *libraries, "-pthread"]
    subprocess.run([str(each) for each in command], check=True)
    return program


def output(program: Path, *steps: str) -> str:
    """Return what the steps print."""
    paths = os.pathsep.join(filter(None, sys.path))
    own = {"PYTHONPATH": paths, "PYTHONHOME": sys.base_prefix}
    ran = subprocess.run(
        [program, *map(dedent, steps)],
        env=os.environ | own,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_a_program_that_embeds_python_converts(program: Path) -> None:
    """docs/safety.md, Interpreters."""
    assert output(program, "start", "run", CONVERT, "end") == CONVERTED


def test_an_interpreter_that_is_started_again_is_refused(program: Path) -> None:
    """docs/safety.md, Interpreters: the objects of the first are gone."""
    again = ["start", "run", REFUSED, "run", REFUSED, "end"]
    found = output(program, "start", "run", CONVERT, "end", *again, *again)
    assert found == CONVERTED + 4 * MESSAGE


def test_the_first_interpreter_that_imports_dlx_need_not_be_the_first(
    program: Path,
) -> None:
    """docs/safety.md, Interpreters: what counts is whose objects dlx holds."""
    before = ["start", "run", "import ctypes", "end"]
    assert output(program, *before, "start", "run", CONVERT, "end") == CONVERTED


def test_a_thread_made_by_c_converts(program: Path) -> None:
    """S2: attached by `PyGILState_Ensure`, though Python has never seen it."""
    after = "print(tensor.tolist(), dlx.from_dlpack(tensor.__dlpack__()).shape)"
    steps = ["start", "thread", CONVERT, "thread", after, "run", after, "end"]
    assert output(program, *steps) == CONVERTED + 2 * "[97, 98, 99] (3,)\n"


@pytest.mark.parametrize("delete", ["delete", "delete-alone"])
@pytest.mark.parametrize("started", [[], ["start"]], ids=["ended", "started again"])
def test_an_export_outlives_the_interpreter(
    program: Path, delete: str, started: list[str]
) -> None:
    """R14: its deleter is called when its interpreter has ended, and leaks."""
    first = ["start", "run", CONVERT, "take", "end"]
    end = ["run", REFUSED, "end"] if started else []
    found = output(program, *first, *started, delete, *end)
    assert found == CONVERTED + (MESSAGE if started else "")


def test_an_export_is_deleted_by_a_thread_made_by_c(program: Path) -> None:
    """S5: which the interpreter has never seen, while it runs."""
    owned = """
        import dlx

        class Owner:
            def __del__(self):
                print("let go")

        capsule = dlx.from_pointer(8, (3,), "int8", owner=Owner()).__dlpack__(
            max_version=(1, 3)
        )
        """
    found = output(program, "start", "run", owned, "take", "delete-alone", "end")
    assert found == "let go\n"
