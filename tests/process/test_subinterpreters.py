"""Sub-interpreters: they are refused, and the main interpreter goes on."""

from __future__ import annotations

import sys

import pytest
from support.python_process import run_python

pytestmark = pytest.mark.slow

BEFORE = """
    import sys

    try:
        import _interpreters as interpreters  # From 3.13 on.
    except ImportError:
        import _xxsubinterpreters as interpreters
    run = getattr(interpreters, "exec", interpreters.run_string)

    def create(isolated):
        "Make one with a GIL of its own, where there are such, or with ours."
        if sys.version_info < (3, 13):
            return interpreters.create(isolated=isolated)
        return interpreters.create("isolated" if isolated else "legacy")

    tries = "for _ in range(2):"
    tries += "\\n try: import dlx\\n except ImportError as error: print(error)"
    """
REFUSALS = {
    "dlx supports the main interpreter alone, started once",
    # CPython's, from 3.12 on.
    "module dlx._core does not support loading in subinterpreters",
}


def printed(code: str) -> list[str]:
    """Return the lines that a new process prints."""
    status, out, err = run_python(BEFORE + code)
    assert (status, err) == (0, "")
    return out.splitlines()


@pytest.mark.parametrize("isolated", [False, True])
def test_a_second_interpreter_is_refused(isolated: bool) -> None:
    """docs/safety.md, Interpreters: as often as it tries."""
    lines = printed(
        f"""
    import dlx
    tensor = dlx.from_dlpack(bytearray(b"abc"))
    for _ in range(2):
        other = create({isolated})
        run(other, tries)
        interpreters.destroy(other)
    print(dlx.from_dlpack(tensor.__dlpack__()).tolist())
    """
    )
    assert set(lines[:4]) <= REFUSALS
    assert lines[4:] == ["[97, 98, 99]"]


def test_another_interpreter_is_refused_before_the_main_one_has_dlx() -> None:
    """docs/safety.md, Interpreters: `PyGILState_Ensure` would wait there for ever."""
    lines = printed(
        """
    other = create(False)
    run(other, tries)
    import dlx
    print(dlx.from_dlpack(bytearray(b"abc")).tolist())
    run(other, tries)
    interpreters.destroy(other)
    """
    )
    assert lines.pop(2) == "[97, 98, 99]"
    assert len(lines) == 4
    assert set(lines) <= REFUSALS


def test_the_main_interpreter_goes_on_while_another_is_alive() -> None:
    """docs/safety.md, Interpreters: classes, exports and releases included."""
    lines = printed(
        """
    import dlx
    other = create(False)
    run(other, tries)

    class Mixin(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data):
            self.data = data

    class Owner:
        def __del__(self):
            print("let go")

    tensor = dlx.from_pointer(8, (0,), "int8", owner=Owner())
    made = dlx.convert(tensor, Mixin)
    print(memoryview(made.data).nbytes, dlx.DeviceType.CPU.name)
    del tensor, made
    interpreters.destroy(other)
    """
    )
    assert set(lines[:2]) <= REFUSALS
    assert lines[2:] == ["0 CPU", "let go"]


@pytest.mark.skipif(
    sys.version_info[:3] == (3, 13, 0),
    reason="CPython 3.13.0 crashes when it refuses to send an object, also object()",
)
def test_a_tensor_is_not_sent_to_another_interpreter() -> None:
    """docs/safety.md, Interpreters: CPython refuses what it does not know."""
    lines = printed(
        """
    import dlx
    tensor = dlx.from_dlpack(bytearray(b"abc"))
    other = create(False)
    for sent in tensor, tensor.device, tensor.__dlpack__():
        try:
            run(other, "print(x)", shared={"x": sent})
        except Exception as error:
            print(isinstance(error, ValueError) or type(error).__name__)
    interpreters.destroy(other)
    print(tensor.tolist())
    """
    )
    assert len(lines) == 4
    assert set(lines[:3]) <= {"True", "InterpreterError"}
    assert lines[3] == "[97, 98, 99]"
