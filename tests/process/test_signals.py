"""Signals while dlx is at work: an interrupt comes out, and loses and leaks nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import dlx
import numpy as np
import pytest
from support.callback_steps import STEPS, calls, happening, kept, references
from support.python_process import run_python
from support.simulated_driver import library_path

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def interrupting() -> Iterator[None]:
    """Have an interrupt raise `KeyboardInterrupt`."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def ticking() -> Iterator[list[int]]:
    """Have a signal come all the time, whose handler counts."""
    count = [0]

    def tick(number: int, frame: object) -> None:
        count[0] += 1

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    yield count
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupt_in_user_code_comes_out(step: str) -> None:
    """R8: in whichever call it arrives; the same call works afterwards."""
    run = STEPS[step]
    run()
    names = calls(run)
    for at, name in enumerate(names):
        before = references()
        with (
            happening(lambda: signal.raise_signal(signal.SIGINT), at),
            pytest.raises(KeyboardInterrupt),
        ):
            run()
        assert kept(before) == [], (at, name)
        run()


@pytest.mark.parametrize("step", STEPS)
def test_a_handler_that_returns_changes_nothing(step: str, ticking: list[int]) -> None:
    """PEP 475: what a signal interrupts goes on."""
    run = STEPS[step]
    run()
    before, names, start = references(), calls(run), ticking[0]
    while ticking[0] < start + 5:
        assert calls(run) == names
    assert kept(before) == []


def test_shared_memory_survives_signals(ticking: list[int]) -> None:
    """PEP 475: no call of the system fails because of one."""
    array, name = np.arange(100_000), f"dlx-test-signals-{os.getpid()}"
    while ticking[0] < 50:
        with dlx.share(array, name=name) as handle:
            assert dlx.attach(bytes(handle), like=np.ndarray)[-1] == 99_999
            assert dlx.attach(f"shm:{name}").shape == (100_000,)


WAITS = {
    "a copy to the host": "device.to(device='cpu')",
    "a conversion": "dlx.convert(device, np.ndarray, device='cpu')",
    "an import": "dlx.from_dlpack(device, device='cpu')",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_an_interrupt_while_dlx_waits_for_a_stream_comes_out(wait: str) -> None:
    """docs/safety.md, Threads: when the wait has ended; nothing is lost or leaked."""
    code = (
        f"""
    import os
    os.environ["DLX_LIBCUDA"] = {str(library_path())!r}
    import ctypes, gc, signal, threading
    import dlx, numpy as np
    from support.simulated_driver import simulation

    libc = ctypes.CDLL(None)
    sim = simulation()
    sim.start()
    s = sim.stream()
    array = np.arange(3.0)
    device = dlx.from_dlpack(array, device="cuda:0", stream=s)
    held = ctypes.create_string_buffer(64)  # A sem_t.
    libc.sem_init(held, 0, 0)
    copy = lambda: {wait}
    copy()
    gc.collect()
    before = sim.counts
    wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p).value
    sim.call("cuLaunchHostFunc", s.handle, wait, ctypes.addressof(held))
    sim.clear_journal()
    main = threading.main_thread().ident
    """
        + """
    def interrupt():
        while not any("Synchronize" in name for name in sim.called()):
            pass
        signal.pthread_kill(main, signal.SIGINT)
        libc.sem_post(held)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        copy()
        print("nothing")
    except KeyboardInterrupt:
        print("interrupted")
    thread.join()
    sim.advance()
    gc.collect()
    assert np.asarray(copy()).tolist() == [0, 1, 2]
    gc.collect()
    assert sim.counts == before, (sim.counts, before)
    assert sim.violations == []
    """
    )
    assert run_python(code) == (0, "interrupted\n", "")
