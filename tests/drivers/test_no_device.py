"""A real driver that finds no device: one clear error, and the CPU goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drivers.fetch import CUDA
from drivers.real import ACCEPTED, Driver

DEVICES = {"cuda": "/proc/driver/nvidia/version", "hip": "/dev/kfd"}
NO_DEVICE = {
    "cuda": {"cuInit failed with 100 (CUDA_ERROR_NO_DEVICE)"},
    # HIP 5.7 has the second, once.
    "hip": {
        "hipInit failed with 100 (hipErrorNoDevice)",
        "hipInit failed with 101 (hipErrorInvalidDevice)",
    },
}
PRODUCERS = """
    import gc
    import dlx
    import numpy as np
    from support.fake_producers import Producer
    from support.fake_table import without_protocol
    kind, number = {kind}
    array = without_protocol()(device=(number, 0))
    own = Producer(device=(number, 0))
    """

accepted = pytest.mark.parametrize("driver", ACCEPTED, indirect=True)


def run(driver: Driver, code: str) -> str:
    """Output of code beside producers on a device that is not there."""
    if Path(DEVICES[driver.kind]).exists():
        pytest.skip(f"this machine may have a device: it has {DEVICES[driver.kind]}")
    kind = ("cuda", 2) if driver.kind == "cuda" else ("rocm", 10)
    lines = [line.strip() for line in PRODUCERS.format(kind=kind).splitlines()]
    return driver.run("\n".join([*lines, code]))


CALLS = [
    'dlx.empty(4, "float32", device=f"{kind}:0")',
    "dlx.from_dlpack(array, stream=0x1000)",
    "dlx.from_dlpack(array).synchronize()",
    "dlx.from_dlpack(array).__dlpack__(stream=0x1000)",
    'dlx.from_dlpack(array).to(device="cpu")',
    "dlx.borrow(array, stream=0x1000).__enter__()",
    "dlx.from_dlpack(own, stream=0x1000)",
    "dlx.from_dlpack(own).synchronize()",
    "dlx.borrow(own, stream=0x1000).__enter__()",
]
OF_CUDA = ["dlx.Stream(0x1000)"]
EACH = [
    pytest.param(name, call, id=f"{name}-{call}")
    for name in ACCEPTED
    for call in CALLS + (OF_CUDA if name in CUDA else [])
]
SAID: dict[str, dict[str, str]] = {}
"""The errors of the calls, by driver: one process makes all of them."""


def said(driver: Driver) -> dict[str, str]:
    """Give the error of each call, in a process in which every deleter has run."""
    if driver.name not in SAID:
        code = f"""
import json
said = {{}}
for call in {CALLS + (OF_CUDA if driver.name in CUDA else [])!r}:
    try:
        eval(call)
    except dlx.CudaError as error:
        text = f"{{error.call}} failed with {{error.code}} ({{error.name}})"
        said[call] = text if str(error) == text else repr(error)
gc.collect()
assert array.deleted == len(array.exports) > 0, (array.deleted, array.exports)
assert own.deleted == len(own.exports) > 0, (own.deleted, own.exports)
print(json.dumps(said))
"""
        SAID[driver.name] = json.loads(run(driver, code))
    return SAID[driver.name]


@pytest.mark.parametrize(("driver", "call"), EACH, indirect=["driver"])
def test_what_needs_the_device_says_that_there_is_none(
    driver: Driver, call: str
) -> None:
    """R60: with the driver's own name for it, and every deleter runs."""
    assert said(driver)[call] in NO_DEVICE[driver.kind]


@accepted
def test_a_producer_that_orders_itself_needs_no_driver(driver: Driver) -> None:
    """R73, R80: nothing is called before an order is asked for."""
    code = """
tensor = dlx.from_dlpack(own)
print(tensor.device, tensor.shape, dlx.from_dlpack(own, stream=-1).stream)
del tensor
gc.collect()
assert own.deleted == len(own.exports) == 2
"""
    assert run(driver, code).endswith(":0 (2, 3) None")


@accepted
def test_all_goes_on_on_the_cpu_after_the_error(driver: Driver) -> None:
    """R70: import, export, copy, borrow and use."""
    code = """
try:
    dlx.empty(4, "float32", device=f"{kind}:0")
except dlx.CudaError:
    x = np.arange(3)
    tensor = dlx.from_dlpack(x)
    with dlx.borrow(x, out=np.zeros(3)) as (a, b, stream):
        assert stream is None
    with tensor.use() as view:
        view.numpy()
    tensor.synchronize()
    print(np.from_dlpack(tensor.to(copy=True)).sum(), tensor.stream)
"""
    assert run(driver, code) == "3 None"


@accepted
def test_a_fork_after_the_error_says_the_same(driver: Driver) -> None:
    """H5: a driver that was never initialized is not that of another process."""
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
def say():
    try:
        dlx.empty(4, "float32", device=f"{kind}:0")
    except dlx.CudaError as error:
        print(error, flush=True)
say()
child = os.fork()
if not child:
    say()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    said = run(driver, code).splitlines()
    assert len(said) == 2
    assert set(said) <= NO_DEVICE[driver.kind]
