"""What the add-ons do with nothing but dlx and the standard library beside them."""

import array
import pickle
import subprocess
import sys
from importlib import import_module, metadata, util

import dlx
import dlx_share

values = array.array("f", range(6))
tensor = dlx.from_pointer(values.buffer_info()[0], (2, 3), "float32", owner=values)

assert "shape (2, 3)" in str(dlx.inspect(tensor))
with dlx.trace() as noted:
    held = dlx.empty(6, "float32")
    assert len(noted.live) == len(dlx.live()) == 1
    del held
    noted.assert_released()

[again] = pickle.loads(dlx_share.dumps([tensor]))
assert again.tolist() == tensor.tolist()
if sys.platform == "linux":
    attach = "import sys, dlx; print(dlx.attach(sys.stdin.buffer.read()).tolist())"
    with dlx.share(tensor) as handle:
        command = [sys.executable, "-c", attach]
        said = subprocess.check_output(command, input=bytes(handle))
    assert said.decode().strip() == str(tensor.tolist())

for name in ("check", "inspect", "shm"):
    command = [sys.executable, "-m", "dlx", name, "--help"]
    assert name in subprocess.check_output(command, text=True)

# pytest imports it by this name.
[plugin] = metadata.distribution("dlx-check").entry_points.select(group="pytest11")
assert plugin.name == plugin.value == "dlx_check.pytest_plugin"
assert util.find_spec(plugin.value), "the plugin of pytest is not in the wheel"

# The library in C, which the suite alone uses: it needs NumPy, too.
import_module("dlx_check.natives")
