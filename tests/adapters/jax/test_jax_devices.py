"""JAX may make several devices of the CPU, of which DLPack has one."""

from __future__ import annotations

import dlx
import pytest
from support.optional_libraries import requires
from support.python_process import run_python

BEGIN = """
import os
os.environ |= {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=3", "JAX_PLATFORMS": "cpu",
}
import dlx, jax, jax.numpy as jnp, numpy as np
devices = jax.devices()
x, there = np.arange(3, dtype="f4"), jax.device_put(jnp.arange(3.0), devices[2])
"""

NAMED = {
    "convert": "dlx.convert(x, jax, device=devices[1])",
    "convert with a copy": "dlx.convert(x[::-1], jax, device=devices[1], copy=True)",
    "convert to the first": "dlx.convert(there, jax, device=devices[0])",
    "convert_tree": "dlx.convert_tree([x], jax, device=devices[1])",
    "from_dlpack": "dlx.from_dlpack(x, device=devices[1])",
    "empty": "dlx.empty((3,), 'float32', device=devices[1], like=jax)",
    "Device": "dlx.Device(devices[1])",
}


@pytest.mark.parametrize("call", NAMED.values(), ids=NAMED)
def test_one_of_several_is_refused(call: str) -> None:
    """R63: device= is honoured or refused, never dropped; and the advice helps."""
    requires("jax")
    code, _, errors = run_python(f"""{BEGIN}
try:
    {call}
except ValueError as error:
    assert "one of 3 devices" in str(error) and "jax.device_put" in str(error), error
else:
    raise SystemExit("taken")
made = jax.device_put(dlx.convert(x, jax, device="cpu"), devices[1])
assert made.devices() == {{devices[1]}}
""")
    assert code == 0, errors


def test_an_array_stays_where_it_is() -> None:
    """R63: as itself, or as a copy of the same library."""
    requires("jax")
    code, _, errors = run_python(f"""{BEGIN}
for copy in (None, False, True):
    made = dlx.convert(there, jax, copy=copy)
    assert made.devices() == there.devices(), made.devices()
    assert made.tolist() == [0, 1, 2]
[made] = dlx.convert_tree([there], jax, copy=True)
assert made.devices() == there.devices()
""")
    assert code == 0, errors


def test_the_only_one_is_the_cpu() -> None:
    """R63."""
    [device] = requires("jax").devices("cpu")
    assert dlx.Device(device) == dlx.Device("cpu")
