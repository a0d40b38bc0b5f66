"""H1, H2 and H4 of docs/streams.md, 1000 rounds each.

Without dlx's order they strike, which shows that the rounds are the worst case. With
it they do not strike once.
"""

from __future__ import annotations

import pytest
from support.python_process import run_python

from gpu import hazards
from gpu.clients import client_of
from gpu.machine import Machine
from gpu.report import found

LIBRARIES = ["torch", "cupy"]


def struck(hazard: str, library: str, order: str) -> int:
    """Return in how many rounds a hazard strikes, in this process."""
    client_of(library)
    rounds = hazards.count(hazard, library, order)
    found(f"{hazard} {library} {order}: strikes in {rounds} of {hazards.ROUNDS}")
    return rounds


def struck_elsewhere(library: str, release: str) -> int:
    """Return in how many rounds H4 strikes, with the memory pools of the driver."""
    client_of(library)
    code, out, errors = run_python(
        f"""
        from gpu import hazards
        hazards.use_pools_of_the_driver({library!r})
        print(hazards.count("free", {library!r}, {release!r}))
        """
    )
    assert code == 0, errors
    rounds = int(out.split()[-1])
    line = f"free {library} {release}, cudaMallocAsync: strikes in {rounds}"
    found(f"{line} of {hazards.ROUNDS}")
    return rounds


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("hazard", ["mutate", "free"])
def test_without_order_the_hazard_strikes(
    gpu: Machine, library: str, hazard: str
) -> None:
    """H1, H4: the control, without which the other tests prove nothing."""
    assert struck(hazard, library, "none") > 0


@pytest.mark.parametrize("order", ["borrow", "use"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_a_kernel_has_yet_to_read_is_not_mutated(
    gpu: Machine, library: str, order: str
) -> None:
    """H1: the producer overwrites an input while a kernel waits to read it."""
    assert struck("mutate", library, order) == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_a_kernel_has_yet_to_read_is_not_handed_out(
    gpu: Machine, library: str
) -> None:
    """H4: the input is dropped and its memory reused while a kernel waits to read."""
    assert struck("free", library, "auto") == 0


def test_torch_holds_back_what_it_was_told_of(gpu: Machine) -> None:
    """H4, with `release="record_stream"`."""
    assert struck("free", "torch", "record_stream") == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_order_the_pools_of_the_driver_hand_it_out(
    gpu: Machine, library: str
) -> None:
    """H4: the control for cudaMallocAsync."""
    assert struck_elsewhere(library, "none") > 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_pools_of_the_driver_do_not_hand_it_out(gpu: Machine, library: str) -> None:
    """H4, with cudaMallocAsync."""
    assert struck_elsewhere(library, "auto") == 0


@pytest.mark.parametrize("pair", [("torch", "cupy"), ("cupy", "torch")])
def test_a_kernel_comes_between_the_work_of_two_libraries(
    gpu: Machine, pair: tuple[str, str]
) -> None:
    """H2: after what each did before the block, before what each does after it."""
    one, other = map(client_of, pair)
    hazards.two_streams(gpu, one, other, "none")
    rounds = range(hazards.ROUNDS)
    struck = [hazards.two_streams(gpu, one, other, "borrow") for _ in rounds]
    found(f"H2 {pair}: strikes in {sum(struck)} of {hazards.ROUNDS}")
    assert not any(struck)


def test_without_order_a_kernel_overtakes_two_libraries(gpu: Machine) -> None:
    """H2: the control."""
    one, other = map(client_of, ("torch", "cupy"))
    rounds = range(hazards.ROUNDS)
    struck = [hazards.two_streams(gpu, one, other, "none") for _ in rounds]
    found(f"H2 without order: strikes in {sum(struck)} of {hazards.ROUNDS}")
    assert any(struck)
