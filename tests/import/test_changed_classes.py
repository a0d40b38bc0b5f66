"""Classes that change after dlx has met them: a backend replaces the table of torch.

Each test changes `torch.Tensor`, so it runs in a process of its own.
"""

from __future__ import annotations

import pytest
from support.optional_libraries import requires
from support.python_process import run_after

PRELUDE = """
import ctypes, torch, dlx, numpy as np
from support.dlpack_abi import *

NAME = "__dlpack_c_exchange_api__"
OLD = torch.Tensor.__dlpack_c_exchange_api__
FROM, LEND, MAKE = (
    "managed_tensor_from_py_object_no_sync",
    "dltensor_from_py_object_no_sync",
    "managed_tensor_to_py_object_no_sync",
)
called = []

def noting(name, function):
    return ENTRIES[name](lambda *given: (called.append(name), function(*given))[1])

def replacement():
    old, new = table_of(torch.Tensor), DLPackExchangeAPI()
    ctypes.memmove(ctypes.addressof(new), ctypes.addressof(old), ctypes.sizeof(new))
    for name in FROM, LEND, MAKE:
        setattr(new, name, noting(name, getattr(old, name)))
    for_ever(new)
    return new_capsule(ctypes.addressof(new), b"dlpack_exchange_api")

def asked(use, *arguments):
    called.clear()
    use(*arguments)
    return set(called)

def borrow(x):
    with dlx.borrow(x):
        pass

class Mixed(dlx.ExchangeMixin, exchange="data"):
    def __init__(self, data):
        self.data = data

x, p = torch.arange(4.0), torch.nn.Parameter(torch.zeros(2), requires_grad=False)
USES = {
    "from_dlpack": dlx.from_dlpack,
    "on a device": lambda x: dlx.from_dlpack(x, device="cpu"),
    "convert": lambda x: dlx.convert(x, np.ndarray),
    "borrow": borrow,
    "launcher": dlx.launcher(lambda x: None),
    "bridge": dlx.bridge(np.ndarray)(lambda x: None),
    "mixin": lambda x: exported(Mixed(x)),
    "mixin's table": lambda x: delete(from_table(table_of(Mixed), Mixed(x))),
}
for use in USES.values():
    use(x), use(p)
dlx.convert(np.ones(2), torch.Tensor)
"""


def check(code: str) -> None:
    """Run code after dlx has met torch; it prints nothing, whatever it asserts."""
    requires("torch")
    lines = "\n".join(line.removeprefix("        ") for line in code.splitlines())
    assert run_after(PRELUDE, lines) == (0, "", "")


@pytest.mark.parametrize("x", ["x", "p"])
def test_a_replaced_table_is_asked_in_every_way(x: str) -> None:
    """R114, R117: also of Parameter, which inherits it."""
    check(f"""
        torch.Tensor.__dlpack_c_exchange_api__ = replacement()
        for name, use in USES.items():
            assert asked(use, {x}) & {{FROM, LEND}}, name
        """)


def test_a_replaced_table_makes_the_tensors() -> None:
    """R117, R130: of `convert`, from arrays and other tensors."""
    check("""
        torch.Tensor.__dlpack_c_exchange_api__ = replacement()
        for source in np.ones(2), dlx.empty(2, "float32"):
            assert MAKE in asked(dlx.convert, source, torch.Tensor)
            assert MAKE in asked(dlx.convert, source, torch)
        """)


def test_a_table_that_comes_back_is_asked_again() -> None:
    """R117: and the replacement is not."""
    check("""
        for _ in range(3):
            torch.Tensor.__dlpack_c_exchange_api__ = replacement()
            assert FROM in asked(dlx.from_dlpack, x)
            torch.Tensor.__dlpack_c_exchange_api__ = OLD
            assert asked(dlx.from_dlpack, x) == set()
        """)


def test_a_table_that_is_gone_is_not_asked() -> None:
    """R116, R117: `__dlpack__` is."""
    check("""
        torch.Tensor.__dlpack_c_exchange_api__ = replacement()
        dlx.from_dlpack(x)
        del torch.Tensor.__dlpack_c_exchange_api__
        for use in USES.values():
            assert asked(use, x) == set()
        assert dlx.from_dlpack(x).data_ptr == x.data_ptr()
        assert type(dlx.convert(np.ones(2), torch.Tensor)) is torch.Tensor
        """)


def test_other_changes_of_the_class_change_nothing() -> None:
    """R117: CPython gives a class a thousand versions, and then none."""
    check("""
        for number in range(1100):
            torch.Tensor.of_a_program = number
            assert dlx.from_dlpack(x).data_ptr == x.data_ptr()
        torch.Tensor.__dlpack_c_exchange_api__ = replacement()
        assert FROM in asked(dlx.from_dlpack, x)
        assert FROM in asked(dlx.from_dlpack, p)
        """)


def test_inspect_shows_the_table_that_dlx_asks() -> None:
    """R117: before and after."""
    check("""
        def address(capsule):
            return capsule_pointer(capsule, b"dlpack_exchange_api")

        new = replacement()
        torch.Tensor.__dlpack_c_exchange_api__ = new
        assert dlx.inspect(x).table.location.address == address(new) != address(OLD)
        assert FROM in asked(dlx.from_dlpack, x)
        """)
