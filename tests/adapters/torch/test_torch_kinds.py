"""Every kind of torch's tensors, by every way into dlx: right numbers or a refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import torch_kinds
from support.python_process import run_python
from support.torch_kinds import HARMLESS, LAZY, PLAIN, WAYS, Make

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("make", PLAIN.values(), ids=PLAIN)
def test_what_memory_shows_is_read(make: Make) -> None:
    """R125: no kind is refused that need not be."""
    refused = {way: torch_kinds.check(make, read) for way, read in WAYS.items()}
    assert refused == dict.fromkeys(WAYS)


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_memory_does_not_show_is_refused_with_advice_that_helps(name: str) -> None:
    """R125, R60: the calls that the message names lead to the right numbers."""
    refused = {way: torch_kinds.check(LAZY[name], read) for way, read in WAYS.items()}
    recorded = {"grad", "grad, view", "grad, by its base"}
    taken = {way for way, message in refused.items() if message is None}
    assert taken == (HARMLESS if name in recorded else set())


def test_asking_every_tensor_gives_the_same() -> None:
    """docs/safety.md, S13: where torch's layout is not found, every tensor is asked."""
    command = [sys.executable, "-m", torch_kinds.__name__]
    environment = os.environ | {"DLX_TORCH_FAST": "0"}
    here = Path(__file__).parents[2]
    subprocess.run(command, check=True, cwd=here, env=environment)


def test_an_interrupt_of_the_search_for_the_layout_passes() -> None:
    """docs/safety.md, S13: nobody else would see it; the next tensor is read."""
    program = """if True:
        import numpy as np, torch, dlx
        class Interrupting(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, *rest):
                raise KeyboardInterrupt
        x = torch.ones(2)
        try:
            with Interrupting():
                dlx.from_dlpack(x)
        except KeyboardInterrupt:
            assert dlx.convert(x, np.ndarray).tolist() == [1, 1]
        else:
            raise AssertionError
    """
    assert run_python(program) == (0, "", "")
