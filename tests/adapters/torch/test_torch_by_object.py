"""torch's tensors are known by themselves, whatever `sys.modules` says of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires
from support.python_process import run_python

MAKE = """
x = torch.arange(3.0)
neg = torch._neg_view(torch.arange(1.0, 4.0))
conj = torch.tensor([1 + 2j]).conj()
grad = torch.arange(3.0, requires_grad=True)
narrow = torch.zeros(2, dtype=torch.uint8).view(torch.int4)
"""

GAMES = {
    "imported in a patch": """
from unittest import mock
with mock.patch.dict(sys.modules):
    import torch
    exec(MAKE)
assert "torch" not in sys.modules
""",
    "removed": """
import torch; exec(MAKE)
for name in [n for n in sys.modules if n.partition(".")[0] == "torch"]:
    del sys.modules[name]
""",
    "a mock in its place": """
import torch; exec(MAKE)
from unittest import mock
sys.modules["torch"] = sys.modules["torch._C"] = mock.MagicMock()
""",
    "an empty module in its place": """
import torch, types; exec(MAKE)
sys.modules["torch"] = types.ModuleType("torch")
""",
    "nothing in its place": """
import torch; exec(MAKE)
sys.modules["torch"] = sys.modules["torch._C"] = None
""",
    "a mock for the class": """
import torch; exec(MAKE)
real = torch.Tensor
class torch_Tensor(real): pass
torch.Tensor = torch_Tensor
""",
    "as it is": "import torch; exec(MAKE)",
}


@pytest.mark.parametrize("known", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
def test_guards_are_on(game: str, known: bool) -> None:
    """R125: negated, conjugated, recording gradients; dlx has met torch or not."""
    requires("torch")
    first = "import torch; dlx.from_dlpack(torch.ones(2)); del torch" if known else ""
    if known and "mock.patch.dict" in game:
        first = ""  # torch is imported once
    code, _, errors = run_python(f"""
import sys
import numpy as np, dlx
MAKE = {MAKE!r}
{first}
{game}
class Holder(dlx.ExchangeMixin, exchange="data"):
    def __init__(self, data): self.data = data
for name, each in dict(neg=neg, conj=conj, grad=grad, narrow=narrow).items():
    for way in (
        dlx.from_dlpack,
        lambda x: dlx.from_dlpack(x, copy=True),
        lambda x: dlx.convert(x, np),
        lambda x: dlx.convert(x, dlx.Tensor),
        lambda x: dlx.from_dlpack(Holder(x)),
        lambda x: name != "grad" and dlx.borrow(x).__enter__(),
    ):
        try:
            got = way(each)
        except BufferError:
            continue
        if got is not False:
            raise SystemExit(f"{{name}} is exported: {{got}}")
assert dlx.convert(x, np).tolist() == [0, 1, 2]
assert dlx.from_dlpack(x).data_ptr == x.data_ptr()
""")
    assert code == 0, errors


NARROW = [f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)]


@pytest.mark.parametrize("name", NARROW)
def test_an_integer_of_fewer_than_8_bits_is_refused(name: str) -> None:
    """R63: torch exports it as if it had 8; the advice gives the bytes."""
    torch = requires("torch")
    byte = torch.uint8 if name.startswith("u") else torch.int8
    x = torch.tensor([1, 2, 3], dtype=byte).view(getattr(torch, name))
    ways: list[Callable[[], Any]] = [
        lambda: dlx.from_dlpack(x),
        lambda: dlx.from_dlpack(x, copy=True),
        lambda: dlx.convert(x, np),
        lambda: dlx.borrow(x).__enter__(),
        lambda: dlx.launcher(print)(x),
        lambda: dlx.from_dlpack(torch.nn.Parameter(x, requires_grad=False)),
        lambda: dlx.from_dlpack(x.as_subclass(type("Sub", (torch.Tensor,), {}))),
    ]
    advice = rf"is of torch\.{name}, .*pass tensor\.view\({byte}\)"
    for way in ways:
        with pytest.raises(BufferError, match=advice):
            way()
    assert dlx.from_dlpack(x.view(byte)).tolist() == [1, 2, 3]


def test_integers_of_8_bits_are_shared() -> None:
    """R63."""
    torch = requires("torch")
    for dtype in (torch.uint8, torch.int8, torch.bool):
        x = torch.zeros(3, dtype=dtype)
        assert dlx.from_dlpack(x).data_ptr == x.data_ptr()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")
def test_a_tangent_of_forward_mode_is_not_lost() -> None:
    """R125: the advice gives the primal; outside of a level there is none."""
    torch = requires("torch")
    forward = torch.autograd.forward_ad
    kinds = torch.Tensor, type("Sub", (torch.Tensor,), {})
    exports: list[Callable[[Any], Any]] = [
        dlx.from_dlpack,
        lambda x: dlx.from_dlpack(x, copy=True),
        lambda x: dlx.convert(x, np),
    ]
    for kind in kinds:
        with forward.dual_level():
            x = torch.arange(3.0).as_subclass(kind)
            dual = forward.make_dual(x, torch.ones(3))
            result = dual * 2
            view = dual[1:]
            for each in (dual, result, view):
                for way in exports:
                    with pytest.raises(BufferError, match=r"tangent.*\.detach\(\)"):
                        way(each)
            assert dlx.from_dlpack(dual.detach()).tolist() == [0, 1, 2]
            assert dlx.convert(dual, np, detach=True).tolist() == [0, 1, 2]
            assert dlx.from_dlpack(torch.ones(3).detach()).tolist() == [1] * 3
        assert dlx.from_dlpack(dual).tolist() == [0, 1, 2]


def test_tangents_are_seen_without_the_layout() -> None:
    """`DLX_TORCH_FAST=0` asks torch about each tensor."""
    requires("torch")
    code, _, errors = run_python(
        """
        import torch, dlx
        forward = torch.autograd.forward_ad
        with forward.dual_level():
            dual = forward.make_dual(torch.ones(3), torch.ones(3))
            narrow = torch.zeros(2, dtype=torch.uint8).view(torch.uint4)
            for x in (dual, narrow):
                try:
                    dlx.from_dlpack(x)
                except BufferError:
                    continue
                raise SystemExit(f"{x} is exported")
        assert dlx.from_dlpack(torch.zeros(2, dtype=torch.uint8)).dtype == "uint8"
        """,
        DLX_TORCH_FAST="0",
    )
    assert code == 0, errors


def test_a_tangent_is_seen_whatever_the_level_is_said_to_be() -> None:
    """R125: the tensor is asked, not a variable of a module."""
    torch = requires("torch")
    for kind in (torch.Tensor, type("Sub", (torch.Tensor,), {})):
        # As of C++, which tells no module of the level.
        level = torch._C._enter_dual_level()
        try:
            x = torch.arange(3.0).as_subclass(kind)
            dual = torch._VF._make_dual(x, torch.ones(3), level=level)
            with pytest.raises(BufferError, match=r"tangent.*\.detach\(\)"):
                dlx.from_dlpack(dual)
        finally:
            torch._C._exit_dual_level(level=level)


def test_guards_ask_torch_and_not_what_a_class_was_given() -> None:
    """docs/safety.md, S8: patched attributes of `torch.Tensor` decide nothing."""
    requires("torch")
    code, _, errors = run_python(f"""
import sys, torch, dlx
{MAKE}
torch.Tensor.is_neg = torch.Tensor.is_conj = lambda self: False
torch.Tensor.requires_grad = torch.Tensor.is_quantized = False
for x in (neg, conj, grad):
    for way in (dlx.from_dlpack, lambda x: dlx.from_dlpack(x, copy=True)):
        try:
            way(x)
        except BufferError:
            continue
        raise SystemExit(f"{{x.dtype}} is exported")
assert dlx.from_dlpack(x.detach()).tolist() == [0, 1, 2]
""")
    assert code == 0, errors


@pytest.mark.parametrize("game", ["removed", "nothing in its place"])
def test_torch_learns_what_was_written_to(game: str) -> None:
    """docs/launcher.md: whatever `sys.modules` says; else it is refused."""
    requires("torch")
    code, _, errors = run_python(f"""
import sys, dlx
MAKE = {MAKE!r}
{GAMES[game]}
over = dlx.from_dlpack(x)
with dlx.borrow(out=x):
    pass
assert x._version == 1, x._version
try:
    with dlx.borrow(out=over):
        pass
except BufferError:
    raise SystemExit
assert x._version == 2, x._version
""")
    assert code == 0, errors


def test_memory_of_a_changed_torch_is_not_written() -> None:
    """Where the count lies cannot be asked: no write is better than one untold."""
    requires("torch")
    ran = run_python(
        """
        import dlx
        import torch

        torch.Tensor.__module__ = "changed"
        w = torch.ones(3)
        t = dlx.from_dlpack(w.__dlpack__(max_version=(1, 3)))
        try:
            dlx.borrow(out=t).__enter__()
        except BufferError as error:
            assert "cannot tell that it was written to" in str(error), error
            assert "not as torch made it" in str(error.__cause__), error.__cause__
        else:
            raise AssertionError(w._version)
        """
    )
    assert ran[0] == 0, ran
