"""Chains of owners that are longer than a stack."""

from __future__ import annotations

import pytest
from support.optional_libraries import requires
from support.python_process import run_python

pytestmark = pytest.mark.slow

LINKS: dict[str, tuple[str, str]] = {
    "numpy()": ("", "dlx.from_dlpack(x).numpy()"),
    "np.from_dlpack": ("", "np.from_dlpack(dlx.from_dlpack(x))"),
    "convert": ("", "dlx.convert(dlx.from_dlpack(x), np.ndarray)"),
    "np.asarray": ("", "np.asarray(dlx.from_dlpack(x))"),
    "np.array": ("", "np.array(dlx.from_dlpack(x), copy=False)"),
    "buffers": ("", "memoryview(dlx.from_dlpack(x))"),
    "capsules": ("", "dlx.from_dlpack(x.__dlpack__(max_version=(1, 3)))"),
    "old capsules": ("", "dlx.from_dlpack(x.__dlpack__())"),
    "owners": (
        "",
        "dlx.from_pointer(x.data_ptr, (2,), 'float64', owner=x)",
    ),
    "array interfaces": (
        "class Shown:\n"
        "    def __init__(self, a):\n"
        "        self.held, self.__array_interface__ = a, a.__array_interface__",
        "dlx.from_dlpack(Shown(x))",
    ),
    "torch": ("import torch", "torch.from_dlpack(dlx.from_dlpack(x))"),
    "torch and numpy": ("import torch", "dlx.convert(dlx.convert(x, torch), np)"),
    "tvm-ffi": ("import tvm_ffi", "tvm_ffi.from_dlpack(dlx.from_dlpack(x))"),
    "arrow": (
        "import pyarrow as pa\n"
        "class Shown:\n"
        "    def __init__(self, a): self.__arrow_c_array__ = a.__arrow_c_array__",
        "dlx.from_dlpack(Shown(pa.Array.from_buffers(pa.float64(), 2, "
        "[None, pa.py_buffer(memoryview(x))])))",
    ),
}


@pytest.mark.parametrize(("prepare", "link"), LINKS.values(), ids=LINKS)
def test_a_chain_is_let_go_of_in_a_thread_with_a_small_stack(
    prepare: str, link: str
) -> None:
    """By the statement that lets go of its last link."""
    let_go_of_a_chain(5000, prepare, link, "threading.stack_size(2**18)")


def test_a_chain_of_any_length_is_let_go_of() -> None:
    """With the stack that threads have."""
    let_go_of_a_chain(60_000, "", LINKS["numpy()"][1])


def let_go_of_a_chain(links: int, prepare: str, link: str, stack: str = "") -> None:
    """Make a chain over one owner, and let go of it."""
    if prepare.startswith("import torch"):
        requires("torch")
    code, out, err = run_python(
        f"""
import threading, warnings, weakref
import numpy as np
import dlx
warnings.simplefilter("ignore")
{prepare}

class Owner:
    pass

memory = np.arange(2.0)
owner = Owner()
watched = weakref.ref(owner)
x = dlx.from_pointer(memory.ctypes.data, (2,), "float64", owner=owner)
del owner
for _ in range({links}):
    x = {link}
assert dlx.from_dlpack(x).numpy().tolist() == [0, 1]
assert watched() is not None

def let_go():
    global x
    del x
    assert watched() is None
    print("done")

{stack}
thread = threading.Thread(target=let_go)
thread.start()
thread.join()
"""
    )
    assert (code, out) == (0, "done\n"), err
