"""Tensors of torch that have no elements of their own, or that can only be exported."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlx_producers import ByMethod, Stored
from support.optional_libraries import requires

torch = requires("torch")


@contextmanager
def entered(x: Any) -> Iterator[Any]:
    """Give what a block lends."""
    with dlx.borrow(x) as (lent, *_):
        yield lent


def lent(x: Any) -> Any:
    """Copy what a block lends."""
    with entered(x) as tensor:
        return dlx.from_dlpack(tensor, copy=True)


WAYS: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": dlx.from_dlpack,
    "copy": lambda x: dlx.from_dlpack(x, copy=True),
    "device": lambda x: dlx.from_dlpack(x, device="cpu"),
    "convert to NumPy": lambda x: dlx.convert(x, np),
    "convert to dlx": lambda x: dlx.convert(x, dlx.Tensor),
    "detached": lambda x: dlx.convert(x, np, detach=True),
    "tree": lambda x: dlx.convert_tree([x], np)[0],
    "borrow": lent,
    "launcher": lambda x: dlx.launcher(np.copy, give="tensor")(x),
    "bridge": lambda x: dlx.bridge(np.ndarray)(lambda a: a)(x),
    "mixin": lambda x: dlx.from_dlpack(Stored(x)),
    "mixin in mixin": lambda x: dlx.from_dlpack(Stored(ByMethod(x))),
    "export of a mixin": lambda x: Stored(x).__dlpack__(max_version=(1, 3)),
}


def distributed() -> Any:
    """Return a tensor of which each process has a part."""
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    return distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])


def reduced() -> Any:
    """Return a tensor that is being communicated."""
    distributed()
    collectives = requires("torch.distributed._functional_collectives")
    return collectives.all_reduce(torch.ones(3), "sum", torch.distributed.group.WORLD)


def masked() -> Any:
    """Return a tensor with a mask."""
    x = torch.arange(4.0)
    return requires("torch.masked").masked_tensor(x, x > 1)


HELP: dict[str, tuple[Callable[[], Any], str, Callable[[Any], Any], list[float]]] = {
    "DTensor": (distributed, "to_local", lambda x: x.to_local(), [0, 1, 2, 3]),
    "DTensor, all": (
        distributed,
        "full_tensor",
        lambda x: x.full_tensor(),
        [0, 1, 2, 3],
    ),
    "DTensor as a parameter": (
        lambda: torch.nn.Parameter(distributed(), requires_grad=False),
        "to_local",
        lambda x: x.to_local(),
        [0, 1, 2, 3],
    ),
    "AsyncCollectiveTensor": (reduced, "wait", lambda x: x.wait(), [1, 1, 1]),
    "MaskedTensor": (masked, "to_tensor", lambda x: x.to_tensor(0), [0, 0, 2, 3]),
    "MaskedTensor, all": (masked, "get_data", lambda x: x.get_data(), [0, 1, 2, 3]),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("make", "call", "act", "right"), HELP.values(), ids=HELP)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_wrapper_is_refused_with_the_call_that_helps(
    make: Any, call: str, act: Any, right: list[float], way: Any
) -> None:
    """R60: what the call returns is taken."""
    x = make()
    with pytest.raises(BufferError, match=rf"tensor\.{call}\("):
        way(x)
    assert dlx.from_dlpack(act(x)).tolist() == right


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_parameter_without_elements_is_refused_until_it_has_some(way: Any) -> None:
    """R60: `materialize` makes it a parameter like others."""
    x = torch.nn.UninitializedParameter(requires_grad=False)
    with pytest.raises(BufferError, match=r"tensor\.materialize\(shape\)"):
        way(x)
    x.materialize((2,))
    assert dlx.from_dlpack(x).shape == (2,)


def wrapper() -> Any:
    """Return torch's class of tensors that can only be exported."""
    module = requires("torch.utils.dlpack")
    if not hasattr(module, "ReadOnlyTensorWrapper"):
        pytest.skip("this torch has no ReadOnlyTensorWrapper")
    return module.ReadOnlyTensorWrapper


def test_what_only_exports_becomes_a_tensor_that_computes() -> None:
    """R42: a copy, as of other read-only memory; `copy=False` refuses."""
    x = torch.arange(3.0)
    r = wrapper()(x)
    made = dlx.convert(r, torch.Tensor)
    assert type(made) is torch.Tensor
    assert (made + 1).tolist() == [1, 2, 3]
    made[0] = 5
    assert x[0] == 0
    assert dlx.convert_tree([r], torch)[0].add(1).tolist() == [1, 2, 3]
    with pytest.raises(dlx.CopyRefused):
        dlx.convert(r, torch.Tensor, copy=False)


def test_what_only_exports_is_itself_where_its_own_class_is_asked_for() -> None:
    """docs/convert.md: an instance of the target is returned as it is."""
    r = wrapper()(torch.arange(3.0))
    assert dlx.convert(r, type(r)) is r


@pytest.mark.parametrize("to", [np.ndarray, torch.Tensor])
@pytest.mark.parametrize("times", [1, 3])
def test_a_bridged_function_computes_with_what_only_exports(
    to: Any, times: int
) -> None:
    """docs/bridge.md: the result is a tensor of its library."""
    bridged = dlx.bridge(to)(lambda a: a + 1)
    for _ in range(times):
        made = bridged(wrapper()(torch.arange(3.0)))
    assert type(made) is torch.Tensor
    assert made.tolist() == [1, 2, 3]
    assert bridged(torch.arange(3.0)).tolist() == [1, 2, 3]


@pytest.mark.parametrize("to", [np.ndarray, torch.Tensor])
def test_what_only_exports_is_no_out(to: Any) -> None:
    """N0: it is read-only."""
    x = torch.zeros(3)

    @dlx.bridge(to)
    def fill(out: Any) -> None:
        out[...] = 7

    with pytest.raises(BufferError, match="read-only"):
        fill(out=wrapper()(x))
    assert x.tolist() == [0, 0, 0]


LAZY: dict[str, tuple[Callable[[], Any], str]] = {
    "negated": (lambda: torch._neg_view(torch.arange(3.0)), "resolve_neg"),
    "conjugated": (lambda: torch.ones(2, dtype=torch.complex64).conj(), "resolve_conj"),
    "recording": (lambda: torch.ones(2, requires_grad=True), "detach"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("make", "call"), LAZY.values(), ids=LAZY)
def test_what_only_exports_is_refused_with_what_to_call_before(
    make: Any, call: str, way: Any
) -> None:
    """R125, R60: the call is one of the tensor that it wraps."""
    x = make()
    r = wrapper()(x)
    if call == "detach" and way in (WAYS["borrow"], WAYS["launcher"]):
        return  # a kernel records no gradients
    with pytest.raises(
        BufferError, match=rf"tensor\.{call}\(\), of the tensor that it"
    ):
        way(r)
    right = getattr(x, call)()
    assert dlx.from_dlpack(wrapper()(right)).readonly


def test_a_subclass_with_an_export_of_its_own_that_computes_is_kept() -> None:
    """docs/convert.md: an instance of a subclass of the target is returned as it is."""

    class Logged(torch.Tensor):  # type: ignore[misc, name-defined]
        def __dlpack__(self, **keywords: Any) -> Any:
            return super().__dlpack__(**keywords)

    x = torch.ones(3).as_subclass(Logged)
    assert dlx.convert(x, torch.Tensor) is x
    assert dlx.bridge(torch.Tensor)(lambda x: x)(x) is x


def test_sharing_memory_frees_what_torch_itself_has_exported() -> None:
    """README.md, Limits: dlx can prevent it as little as `numpy()` of torch can."""
    for export in (lambda x: x.numpy(), dlx.from_dlpack):
        alive = weakref.ref(a := np.zeros(4))
        x = torch.from_numpy(a)
        exported = export(x)
        del a
        gc.collect()
        assert alive() is not None
        x.share_memory_()
        assert alive() is None
        del exported


def test_a_subclass_whose_device_cannot_be_asked_for_is_lent() -> None:
    """As it is imported: in a fake mode, torch fails to say whether it is pinned."""
    torch = requires("torch")
    fake = torch._subclasses.fake_tensor.FakeTensorMode
    kind = type("Kind", (torch.Tensor,), {})
    x = torch.arange(3.0).as_subclass(kind)
    with fake():
        imported = dlx.from_dlpack(x)
        with dlx.borrow(x) as (lent, _):
            assert lent.data_ptr == imported.data_ptr
        with dlx.borrow(out=x) as (lent, _):
            assert lent.data_ptr == imported.data_ptr
