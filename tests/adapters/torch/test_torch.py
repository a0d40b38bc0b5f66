"""torch tensors: through its exchange table, and never what the table gets wrong.

Their dtypes, layouts and memory are in `test_torch_data.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import dlx
import pytest
from support.fake_table import Forward, not_called
from support.optional_libraries import requires
from support.python_process import run_python

torch = requires("torch")


def complex_values() -> Any:
    """Two complex numbers, neither real nor imaginary."""
    return torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)


# Lazy bits and gradients

LAZY: dict[str, tuple[Callable[[], Any], str]] = {
    "conj": (lambda: complex_values().conj(), "resolve_conj"),
    "conj complex128": (
        lambda: complex_values().to(torch.complex128).conj(),
        "resolve_conj",
    ),
    "conj transposed": (
        lambda: complex_values().reshape(2, 1).mH,
        "resolve_conj",
    ),
    "conj 0-d": (lambda: torch.tensor(1 + 2j).conj(), "resolve_conj"),
    "conj one element": (lambda: torch.tensor([1 + 2j]).conj(), "resolve_conj"),
    "neg": (lambda: complex_values().conj().imag, "resolve_neg"),
    "neg 0-d": (lambda: torch.tensor(1 + 2j).conj().imag, "resolve_neg"),
    "neg one element": (lambda: torch.tensor([1 + 2j]).conj().imag, "resolve_neg"),
    "neg contiguous": (
        lambda: complex_values().conj().imag.as_strided((3,), (1,)),
        "resolve_neg",
    ),
    "neg float64": (
        lambda: complex_values().to(torch.complex128).conj().imag,
        "resolve_neg",
    ),
    "neg bfloat16": (
        lambda: torch._neg_view(torch.ones(2, dtype=torch.bfloat16)),
        "resolve_neg",
    ),
    "neg complex": (lambda: torch._neg_view(complex_values()), "resolve_neg"),
    "requires_grad": (lambda: torch.ones(2, requires_grad=True), "detach"),
    "requires_grad complex": (lambda: complex_values().requires_grad_(), "detach"),
    "requires_grad bfloat16": (
        lambda: torch.ones(2, dtype=torch.bfloat16, requires_grad=True),
        "detach",
    ),
    "requires_grad float8": (
        lambda: torch.ones(2).to(torch.float8_e4m3fn).requires_grad_(),
        "detach",
    ),
    "requires_grad empty": (lambda: torch.ones(0, requires_grad=True), "detach"),
    "result of autograd": (lambda: torch.ones(2, requires_grad=True) * 2, "detach"),
    "Parameter": (lambda: torch.nn.Parameter(torch.ones(2)), "detach"),
}
every_lazy = pytest.mark.parametrize(("make", "way"), LAZY.values(), ids=LAZY)


@every_lazy
def test_what_its_memory_does_not_show_is_refused(
    make: Callable[[], Any], way: str
) -> None:
    """R125: the message names the method that helps."""
    other = ", or detach=True to dlx.convert or dlx.bridge" if way == "detach" else ""
    with pytest.raises(BufferError, match=rf"pass tensor\.{way}\(\){other}$"):
        dlx.from_dlpack(make())
    if other:
        dlx.convert(make(), dlx.Tensor, detach=True)


@every_lazy
def test_the_method_that_the_refusal_names_helps(
    make: Callable[[], Any], way: str
) -> None:
    """R125: the values are the right ones."""
    tensor = make()
    resolved = getattr(tensor, way)()
    assert torch.equal(torch.from_dlpack(dlx.from_dlpack(resolved)), tensor)


@every_lazy
@pytest.mark.parametrize("copy", [True, False])
def test_copy_makes_no_difference_to_the_refusal(
    make: Callable[[], Any], way: str, copy: bool
) -> None:
    """R125: a copy would have the wrong numbers too."""
    with pytest.raises(BufferError, match=way):
        dlx.from_dlpack(make(), copy=copy)


@every_lazy
def test_a_refused_tensor_is_let_go(make: Callable[[], Any], way: str) -> None:
    """R11: torch keeps the Python object alive as long as an export is."""
    tensor = make()
    alive = weakref.ref(tensor)
    with pytest.raises(BufferError):
        dlx.from_dlpack(tensor)
    del tensor
    assert alive() is None


def test_an_imported_tensor_is_held_and_let_go() -> None:
    """R15, R8: by the import, and with it."""
    tensor = torch.ones(2)
    alive = weakref.ref(tensor)
    imported = dlx.from_dlpack(tensor)
    del tensor
    assert alive() is not None
    del imported
    assert alive() is None


@pytest.mark.parametrize("make", ["conj", "neg", "requires_grad"])
def test_subclasses_are_guarded_too(make: str) -> None:
    """R125: they come through `__dlpack__`, which exports negated views."""
    subclass = type("Sub", (torch.Tensor,), {})
    with pytest.raises(BufferError):
        dlx.from_dlpack(LAZY[make][0]().as_subclass(subclass))


@every_lazy
def test_a_wrapped_tensor_is_guarded_too(make: Callable[[], Any], way: str) -> None:
    """R125; docs/design.md, The way in: the wrapper names the tensor."""
    with pytest.raises(BufferError, match=way):
        dlx.from_dlpack(Forward(make()))


def test_an_attribute_of_one_tensor_changes_nothing_for_the_next() -> None:
    """docs/safety.md, S8: what dlx remembers of torch's methods, it has from torch."""
    program = """
import contextlib, torch, dlx
odd = torch.ones(2)
odd.is_neg = object().__sizeof__
with contextlib.suppress(BufferError):
    dlx.from_dlpack(odd)
assert dlx.from_dlpack(torch.ones(2)).shape == (2,)
"""
    assert run_python(program) == (0, "", "")


def test_a_parameter_without_gradient_is_read() -> None:
    """R117: it inherits the table."""
    parameter = torch.nn.Parameter(torch.arange(3.0), requires_grad=False)
    assert dlx.from_dlpack(parameter).numpy().tolist() == [0, 1, 2]


# The table is what is read


@pytest.fixture
def no_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every call of torch's `__dlpack__` an error: only the table is left."""
    monkeypatch.setattr(torch.Tensor, "__dlpack__", not_called)


@pytest.mark.usefixtures("no_protocol")
@pytest.mark.parametrize(
    "keywords",
    [{}, {"copy": True}, {"copy": False}, {"device": "cpu"}, {"stream": -1}],
    ids=str,
)
@pytest.mark.parametrize("grad", [None, False], ids=["Tensor", "Parameter"])
def test_tensors_and_parameters_come_through_the_table(
    keywords: dict[str, Any], grad: bool | None
) -> None:
    """R112, R117: whatever is asked, `__dlpack__` is not called."""
    tensor = torch.arange(3.0)
    if grad is not None:
        tensor = torch.nn.Parameter(tensor, requires_grad=grad)
    assert dlx.from_dlpack(tensor, **keywords).numpy().tolist() == [0, 1, 2]


@pytest.mark.usefixtures("no_protocol")
def test_a_wrapped_tensor_comes_through_the_table() -> None:
    """docs/design.md, The way in: the wrapper names the tensor."""
    tensor = torch.arange(3.0)
    assert dlx.from_dlpack(Forward(tensor)).data_ptr == tensor.data_ptr()


# Subclasses


class Vetoing(torch.Tensor):  # type: ignore[misc, name-defined]
    """A subclass that no function may look into."""

    @classmethod
    def __torch_function__(cls, function: Any, *arguments: Any) -> Any:
        """Refuse."""
        raise PermissionError(function.__name__)


class Secret(torch.Tensor):  # type: ignore[misc, name-defined]
    """A subclass that exports zeros in place of its data."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export zeros."""
        return torch.zeros(3).__dlpack__(**keywords)


class Denying(torch.Tensor):  # type: ignore[misc, name-defined]
    """A subclass that says of no tensor that it is lazily negated."""

    def is_neg(self) -> bool:
        """Say no."""
        return False


def test_a_subclass_is_asked_what_it_is_by_functions_of_torch() -> None:
    """R125: the methods of the class do not change what its memory holds."""
    tensor = torch.ones(3, dtype=torch.complex64).conj().imag.as_subclass(Denying)
    with pytest.raises(
        BufferError, match=r"^the values of the torch tensor are not those"
    ):
        dlx.from_dlpack(tensor)


def test_a_subclass_can_veto_the_export() -> None:
    """`__torch_function__` has its say; no table asks it."""
    tensor = torch.arange(3.0).as_subclass(Vetoing)
    with pytest.raises(PermissionError):
        dlx.from_dlpack(tensor)


def test_a_subclass_can_export_something_else() -> None:
    """Its own `__dlpack__` is asked."""
    tensor = torch.arange(3.0).as_subclass(Secret)
    assert dlx.from_dlpack(tensor).numpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize("base", ["Tensor", "nn.Parameter"])
def test_a_plain_subclass_is_read(base: str) -> None:
    """R116: by `__dlpack__`, with its strides."""
    bases = {"Tensor": torch.Tensor, "nn.Parameter": torch.nn.Parameter}
    subclass = type("Sub", (bases[base],), {})
    tensor = torch.arange(6.0).reshape(2, 3).T.as_subclass(subclass)
    imported = dlx.from_dlpack(tensor)
    assert (imported.data_ptr, imported.strides) == (tensor.data_ptr(), (1, 3))


def test_torchs_own_read_only_wrapper_is_read_only() -> None:
    """R42: it allows nothing but the DLPack methods."""
    module = requires("torch.utils.dlpack")
    if not hasattr(module, "ReadOnlyTensorWrapper"):
        pytest.skip("this torch has no ReadOnlyTensorWrapper")
    tensor = torch.arange(3.0)
    imported = dlx.from_dlpack(module.ReadOnlyTensorWrapper(tensor))
    assert imported.readonly
    assert imported.data_ptr == tensor.data_ptr()
