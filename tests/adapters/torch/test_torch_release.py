"""Memory that goes from dlx to torch and back: torch lets go of it without the GIL."""

from __future__ import annotations

import pytest
from support.optional_libraries import requires
from support.python_process import run_python

pytestmark = pytest.mark.slow

WAYS = {
    "table": "dlx.from_dlpack(theirs)",
    "capsule": "dlx.from_dlpack(theirs.__dlpack__(max_version=(1, 3)))",
    "mixin": "dlx.from_dlpack(Stored(theirs))",
    "export of a mixin": "Stored(theirs).__dlpack__(max_version=(1, 3))",
    "made mixin": "Stored.from_dlpack(theirs)",
    "array": "np.from_dlpack(dlx.from_dlpack(theirs))",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_an_owner_is_let_go_of_while_torch_has_let_go_of_the_gil(way: str) -> None:
    """R13: the deleter attaches by itself, whatever the frames above it believe."""
    requires("torch")
    code = f"""
        import ctypes, weakref
        import dlx, numpy as np, torch
        from support.dlx_producers import Stored

        class Owner:
            numbers = (ctypes.c_float * 6)(*range(6))

        owner = Owner()
        gone = weakref.ref(owner)
        address = ctypes.addressof(owner.numbers)
        ours = dlx.from_pointer(address, (2, 3), "float32", owner=owner)
        theirs = torch.from_dlpack(ours)
        held = {way}
        del owner, ours, theirs
        print(gone() is None)
        del held
        print(gone() is None)
        """
    assert run_python(code) == (0, "False\nTrue\n", "")
