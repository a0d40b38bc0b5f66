"""The table of torch describes what `__dlpack__` refuses: the header asks (R125)."""

from __future__ import annotations

import sys
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

WRITE, NO_GRAD, AS_EXPORTED = 1, 8, 64


@pytest.fixture
def torch() -> Any:
    """Give torch."""
    return requires("torch")


def looks(image: Any) -> list[Any]:
    """Give the ways to take a tensor: lent, exported, to keep."""
    return [
        image.look,
        lambda x: image.look(x, WRITE),
        lambda x: image.import_like(x, None),
    ]


def test_a_tensor_is_where_torch_says(image: Any, torch: Any) -> None:
    """And nothing is asked that would change it."""
    x = torch.ones(3, 4).t()
    assert image.look(x)[:3] == (x.data_ptr(), (4, 3), (1, 4))


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_a_lazily_conjugated_view_is_refused(image: Any, torch: Any, name: str) -> None:
    """R125: its memory has other numbers."""
    x = torch.ones(3, dtype=getattr(torch, name)).conj()
    for look in looks(image):
        with pytest.raises(BufferError, match=r"conj.*; pass x\.resolve_conj\(\)"):
            look(x)
    assert image.look(x, AS_EXPORTED)[0] == x.data_ptr()


def test_a_lazily_negated_view_is_refused(image: Any, torch: Any) -> None:
    """R125: of whatever elements."""
    views = [
        torch.ones(3, dtype=torch.complex64).conj().imag,
        torch._neg_view(torch.ones(3, dtype=torch.int64)),
    ]
    for x in views:
        assert x.is_neg()
        for look in looks(image):
            with pytest.raises(BufferError, match=r"neg.*; pass x\.resolve_neg\(\)"):
                look(x)


@pytest.mark.parametrize("name", ["bool", "int64", "float32", "complex64"])
@pytest.mark.parametrize("start", [0, 1, 2_000, 40_000])
def test_a_tensor_whose_storage_was_freed_is_refused(
    image: Any, torch: Any, start: int, name: str
) -> None:
    """R111: at any offset, as FSDP leaves parameters; the address is no memory's."""
    x = torch.zeros(100_000, dtype=getattr(torch, name))[start:]
    x.untyped_storage().resize_(0)
    for look in [*looks(image), lambda x: image.look(x, AS_EXPORTED)]:
        with pytest.raises(BufferError, match="it has elements, and no memory"):
            look(x)


@pytest.mark.parametrize("rows", [0, 1, 5000])
def test_a_fake_tensor_is_refused(image: Any, torch: Any, rows: int) -> None:
    """R111: torch's own `__dlpack__` gives addresses of nothing."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.ones(10_000, 4)
    for look in looks(image):
        with pytest.raises(BufferError, match="no memory"):
            look(x[rows:])


def traced(torch: Any, how: str, look: Any) -> None:
    """Give a tensor to a function as torch gives it while it looks at that."""
    x = torch.ones(2, 3)
    if how == "vmap":
        torch.vmap(lambda row: (look(row), row)[1])(x)
    elif how == "grad":
        torch.func.grad(lambda row: (look(row), row.sum())[1])(x[0])
    elif how == "functionalize":
        torch.func.functionalize(lambda row: (look(row), row)[1])(x[0])
    else:
        make_fx = torch.fx.experimental.proxy_tensor.make_fx
        make_fx(lambda row: (look(row), row)[1], tracing_mode=how)(x[0])


@pytest.mark.parametrize("how", ["vmap", "grad", "functionalize", "fake", "symbolic"])
def test_a_tensor_of_a_transformation_is_refused(
    image: Any, torch: Any, how: str
) -> None:
    """R111, R125: it stands for others; what torch raises stays (R60)."""
    requires("torch.fx.experimental.proxy_tensor")
    seen = []

    def looked(x: Any) -> None:
        for look in looks(image):
            with pytest.raises(
                (BufferError, RuntimeError), match=r"memory|data po|grad"
            ):
                look(x)
            seen.append(x)

    traced(torch, how, looked)
    assert len(seen) == 3


def test_a_subclass_that_has_no_memory_is_refused(image: Any, torch: Any) -> None:
    """R111: one that stands for other tensors, and one of zeros."""

    class Stands(torch.Tensor):  # type: ignore[misc]
        @staticmethod
        def __new__(cls) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, (3,))

        @classmethod
        def __torch_dispatch__(cls, *_: Any) -> Any:
            raise NotImplementedError

    for x in (Stands(), torch._efficientzerotensor(3)):
        for look in looks(image):
            with pytest.raises(BufferError, match="no memory"):
                look(x)


def test_what_a_subclass_raises_stays(image: Any, torch: Any) -> None:
    """R60: its function is asked in place of torch's."""

    class Raises(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(cls, *_: Any) -> Any:
            raise ZeroDivisionError

    x = torch.ones(3).as_subclass(Raises)
    for look in looks(image):
        with pytest.raises(ZeroDivisionError):
            look(x)


def test_a_tensor_of_inference_mode_is_written(image: Any, torch: Any) -> None:
    """It counts no writes, since no backward saves it."""
    with torch.inference_mode():
        x = torch.ones(3)
    assert image.look(x, WRITE)[0] == x.data_ptr()


def test_what_a_backward_pass_would_read_is_not_written(image: Any, torch: Any) -> None:
    """A leaf, and what was computed; `no_grad` and inference mode record nothing."""
    leaf = torch.ones(3, requires_grad=True)
    refused = r"^x: it requires grad; pass x\.detach\(\)$"
    for x in (leaf, leaf * 2, torch.nn.Parameter(torch.ones(2))):
        with pytest.raises(BufferError, match=refused):
            image.look(x, WRITE)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                assert image.look(x, WRITE)[0] == x.data_ptr()
        assert image.look(x)[0] == image.look(x.detach(), WRITE)[0] == x.data_ptr()


def test_a_tensor_that_records_gradients_is_lent_and_not_kept(
    image: Any, torch: Any
) -> None:
    """R125: a kernel records none; who minds, asks for DLX_NO_GRAD."""
    x = torch.ones(3, requires_grad=True)
    image.look(x)
    text = r"^x: it requires grad; pass x\.detach\(\)$"
    with pytest.raises(BufferError, match=text):
        image.look(x, NO_GRAD)
    with pytest.raises(BufferError, match=text.replace("x: ", "")):
        image.import_like(x, None)
    image.import_like(x.detach(), None)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:FutureWarning")  # torch's own
def test_a_tangent_of_forward_mode_is_not_lost(image: Any, torch: Any) -> None:
    """R125: as for what requires grad; a kernel that reads alone may ignore it."""
    forward = torch.autograd.forward_ad
    text = r"^x: it has a tangent; pass x\.detach\(\)$"
    with forward.dual_level():
        x = forward.make_dual(torch.ones(3), torch.full((3,), 10.0))
        image.look(x)
        for flags in (NO_GRAD, WRITE):
            with pytest.raises(BufferError, match=text):
                image.look(x, flags)
            image.look(x.detach(), flags)
        with pytest.raises(BufferError, match="it has a tangent"):
            image.import_like(x, None)
    image.look(x, NO_GRAD)  # its level has ended


def test_what_holds_a_tensor_that_records_is_asked_for_it(
    image: Any, torch: Any
) -> None:
    """R125: the export of a class with a table knows what its view does not."""

    class Held(dlx.ExchangeMixin, exchange="data"):
        def __init__(self, data: Any) -> None:
            self.data = data

    image.look(Held(torch.ones(3, requires_grad=True)))
    with pytest.raises(BufferError, match="requires grad"):
        image.look(Held(torch.ones(3, requires_grad=True)), NO_GRAD)
    image.look(Held(torch.ones(3)), NO_GRAD)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda torch: torch.empty(3, device="meta"), "meta"),
        (
            lambda torch: torch.sparse_coo_tensor(
                [[0]], [1.0], (2,), check_invariants=True
            ),
            "strided",
        ),
    ],
    ids=["meta", "sparse"],
)
def test_what_the_table_cannot_describe_is_refused_in_the_words_of_the_method(
    image: Any, torch: Any, make: Any, text: str
) -> None:
    """R124, R147: the table raises RuntimeError for it."""
    for look in looks(image):
        with pytest.raises(BufferError, match=text):
            look(make(torch))


def test_a_subclass_is_asked_by_its_own_methods(image: Any, torch: Any) -> None:
    """R117."""

    class Own(torch.Tensor):  # type: ignore[misc]
        pass

    x = torch.ones(3, dtype=torch.complex64).as_subclass(Own)
    assert image.look(x)[0] == x.data_ptr()
    with pytest.raises(BufferError, match="lazily conjugated"):
        image.look(x.conj())


def test_a_result_is_torchs(image: Any, torch: Any) -> None:
    """R130, R138: in memory that torch allocated."""
    x = torch.arange(6.0).reshape(2, 3)
    scaled = image.scale(x, 2)
    assert torch.equal(scaled, 2 * x)
    back = image.import_like(np.ones(3), x)
    assert type(back) is torch.Tensor
    assert back.tolist() == [1, 1, 1]


def test_a_backward_that_saved_what_is_written_raises(image: Any, torch: Any) -> None:
    """It would read the new numbers; torch counts writes, also under no_grad."""
    weight, x = torch.ones(3, requires_grad=True), torch.full((3,), 5.0)
    product = (weight * x).sum()
    image.look(x)
    assert x._version == 0
    with torch.no_grad():
        image.look(x, WRITE | AS_EXPORTED)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_a_write_by_the_method_of_a_subclass_is_told(image: Any, torch: Any) -> None:
    """Its table is not asked, since it has a `__dlpack__` of its own."""

    class Own(torch.Tensor):  # type: ignore[misc]
        def __dlpack__(self, **how: Any) -> Any:
            return super().__dlpack__(**how)

    weight, x = torch.ones(3, requires_grad=True), torch.full((3,), 5.0)
    product = (weight * x).sum()
    image.look(x.as_subclass(Own))
    assert x._version == 0
    image.look(x.as_subclass(Own), WRITE)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_a_write_is_refused_where_torch_cannot_be_told(
    image: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that is not there is no permission."""
    monkeypatch.delitem(sys.modules, "torch.autograd.graph")
    assert image.look(torch.ones(3))[1] == (3,)
    with pytest.raises(BufferError, match="torch cannot be asked"):
        image.look(torch.ones(3), WRITE)
