"""Each call of user code fails once: its exception comes out, and nothing is kept."""

from __future__ import annotations

from contextlib import suppress

import pytest
from support.callback_steps import STEPS, calls, happening, kept, references


class Fault(Exception):
    """What user code raises."""


class Interrupt(BaseException):
    """What user code may not handle."""


def chain(error: BaseException | None) -> list[BaseException]:
    """Return an exception, and those that it came from."""
    found: list[BaseException] = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


@pytest.mark.parametrize("fault", [Fault, BufferError, MemoryError, Interrupt])
@pytest.mark.parametrize("step", STEPS)
def test_an_exception_of_user_code_comes_out(
    step: str, fault: type[BaseException]
) -> None:
    """R8, R11: whichever call raises it; the same call works afterwards."""
    run = STEPS[step]
    for _ in range(70):  # Until the class is known.
        run()
    names = calls(run)
    assert names
    for at, name in enumerate(names):
        before, raised, found = references(), fault("raised in a test"), ""
        is_ours = True

        def act(raised: BaseException = raised) -> None:
            raise raised

        with happening(act, at):
            try:
                run()
            except BaseException as error:
                is_ours = raised in chain(error)
                found = type(error).__name__
        # dlx asks a known class for its tensor first. If that fails, it begins again
        # with the device, and a CPU tensor needs no device.
        asked_again = name in ("__dlpack__", "__dlpack_device__")
        expected = {fault.__name__} | ({""} if asked_again else set())
        if fault is Interrupt:
            expected = {fault.__name__}
        elif fault is Fault and name == "__index__":
            # Which of the numbers it was in an array interface.
            expected.add("BufferError")
        assert found in expected, (at, name)
        assert is_ours, (at, name)
        with suppress(AttributeError):
            raised.__traceback__ = raised.__cause__ = raised.__context__ = None
        assert kept(before) == [], (at, name)
        assert calls(run) == names
