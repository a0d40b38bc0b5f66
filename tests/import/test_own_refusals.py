"""What an object itself says of its export counts, though its class says otherwise."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NoReturn

import dlx
import numpy as np
import pytest
from support.dlpack_abi import delete, exported, from_table, table_of
from support.dlx_producers import Stored
from support.fake_producers import Producer
from support.optional_libraries import requires
from support.python_process import run_python


def borrowed(x: Any) -> None:
    """Borrow for the length of nothing."""
    with dlx.borrow(x):
        pass


WAYS: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": dlx.from_dlpack,
    "copy": lambda x: dlx.from_dlpack(x, copy=True),
    "device": lambda x: dlx.from_dlpack(x, device="cpu"),
    "convert": lambda x: dlx.convert(x, np.ndarray),
    "convert to dlx": lambda x: dlx.convert(x, dlx.Tensor),
    "tree": lambda x: dlx.convert_tree({"x": x}, dlx.Tensor),
    "bridge": lambda x: dlx.bridge(dlx.Tensor)(lambda a: a)(x),
    "borrow": borrowed,
    "launcher": lambda x: dlx.launcher(lambda a: a)(x),
    "mixin": lambda x: exported(Stored(x)),
    "table": lambda x: delete(from_table(table_of(Stored), Stored(x))),
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


class Array(np.ndarray):
    """An array with attributes of its own."""


class Shy(np.ndarray):
    """An array that has no `__dlpack__`, whatever its class has."""

    def __getattribute__(self, name: str) -> Any:
        """Return what is not hidden."""
        if name == "__dlpack__":
            raise AttributeError(name)
        return super().__getattribute__(name)


class Lazy(np.ndarray):
    """An array whose attributes are computed, as those of a record array are."""

    def __getattribute__(self, name: str) -> Any:
        """Return the attribute that there is."""
        return super().__getattribute__(name)


def array(kind: type[Any]) -> Any:
    """Make an array of a subclass."""
    return np.arange(6, dtype="f4").reshape(2, 3).view(kind)


def tensor(**options: Any) -> Any:
    """Make a tensor of torch."""
    return requires("torch").arange(6.0).reshape(2, 3).clone().requires_grad_(**options)


def parameter() -> Any:
    """Make a parameter of torch."""
    return requires("torch").nn.Parameter(
        tensor(requires_grad=False), requires_grad=False
    )


MAKERS: dict[str, Callable[[], Any]] = {
    "ndarray": lambda: array(Array),
    "torch": lambda: tensor(requires_grad=False),
    "Parameter": parameter,
}
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def refuse(*_positional: Any, **_keywords: Any) -> NoReturn:
    """Refuse."""
    raise BufferError("not to be exported")


@every_maker
@every_way
def test_its_own_refusal_counts(
    way: Callable[[Any], Any], make: Callable[[], Any]
) -> None:
    """R60: an attribute of the instance; others of its class are exported as before."""
    x = make()
    way(x)
    x.__dlpack__ = refuse
    with pytest.raises(BufferError, match="not to be exported"):
        way(x)
    way(make())


@every_maker
def test_its_own_export_counts(make: Callable[[], Any]) -> None:
    """R60: whatever it exports."""
    x, other = make(), Producer()
    x.__dlpack__ = other.__dlpack__
    assert dlx.from_dlpack(x).data_ptr == other.data


@every_maker
def test_a_refusal_that_is_taken_back_is_none(make: Callable[[], Any]) -> None:
    """S6: nothing is remembered of an object."""
    x = make()
    x.__dlpack__ = refuse
    with pytest.raises(BufferError):
        dlx.from_dlpack(x)
    del x.__dlpack__
    x.note = 1
    expected = x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr()
    assert dlx.from_dlpack(x).data_ptr == expected


@every_maker
@every_way
def test_other_attributes_of_it_change_nothing(
    way: Callable[[Any], Any], make: Callable[[], Any]
) -> None:
    """R60: the dict of a copy, or one that was set, is there, too."""
    x = make()
    x.note, x.dlpack = 1, refuse
    way(x)
    way(copy.deepcopy(x))
    x.__dict__ = {}
    way(x)


@every_way
def test_an_array_that_hides_it_is_refused(way: Callable[[Any], Any]) -> None:
    """R61: as a buffer, too, by which it could be read."""
    with pytest.raises(BufferError, match="hides its __dlpack__"):
        way(array(Shy))


def test_the_call_that_helps_is_named() -> None:
    """R61: for who knows that the memory is what counts."""
    x = array(Shy)
    with pytest.raises(BufferError, match=r"pass x.view\(numpy.ndarray\)"):
        dlx.from_dlpack(x)
    assert dlx.from_dlpack(x.view(np.ndarray)).data_ptr == x.ctypes.data


@every_way
@pytest.mark.parametrize("kind", [Lazy, np.recarray, np.matrix, np.memmap])
def test_an_array_that_looks_attributes_up_in_another_way_is_read(
    way: Callable[[Any], Any], kind: Any
) -> None:
    """R60: what it finds is the method of its class."""
    way(array(kind))


@every_way
def test_a_mode_that_chooses_a_device_changes_nothing(
    way: Callable[[Any], Any],
) -> None:
    """docs/launcher.md: also for a kernel that reads what records gradients."""
    torch = requires("torch")
    with torch.device("cpu"):
        way(tensor(requires_grad=False))
        borrowed(tensor(requires_grad=True))


@pytest.mark.parametrize("attribute", [True, False])
def test_without_knowing_torchs_structs_it_is_asked(attribute: bool) -> None:
    """S13: every tensor is, with `DLX_TORCH_FAST=0`."""
    requires("torch")
    code = f"""
    import torch, dlx
    x = torch.ones(2)
    dlx.from_dlpack(x)
    def refuse(**keywords):
        raise BufferError("no")
    if {attribute}:
        x.__dlpack__ = refuse
    try:
        print(dlx.from_dlpack(x).shape)
    except BufferError as error:
        print(error)
    """
    expected = "no\n" if attribute else "(2,)\n"
    assert run_python(code, DLX_TORCH_FAST="0") == (0, expected, "")


class Without(Producer):
    """Says, as classes say of ``__hash__``, that it has no such method."""

    __dlpack__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "read",
    [
        dlx.from_dlpack,
        lambda x: dlx.from_dlpack(x, copy=True),
        lambda x: dlx.from_dlpack(x, device="cpu"),
        lambda x: dlx.convert(x, np),
        lambda x: dlx.borrow(x).__enter__(),
    ],
    ids=["from_dlpack", "copy", "device", "convert", "borrow"],
)
def test_a_method_that_is_none_is_no_method(read: Any) -> None:
    """R61: an `AttributeError`; a tree passes such objects on."""
    for _ in range(2):
        with pytest.raises(AttributeError, match="has no __dlpack__"):
            read(Without())
    tree = [Without()]
    assert dlx.convert_tree(tree, np) is tree


class Streams(Producer):
    """Has two protocols, of which neither works."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Fail."""
        raise ValueError("its own")

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Fail, too."""
        raise ValueError("of Arrow")


class Number(Streams, int):
    """Of a kind for which there is a hint."""


@pytest.mark.parametrize("x", [Streams(), Number()], ids=["any", "number"])
def test_an_error_of_dlpack_is_not_made_up_for_by_arrow(x: object) -> None:
    """R60: nor is it called a refusal of Arrow's."""
    with pytest.raises(ValueError, match="its own"):
        dlx.from_dlpack(x)


def test_a_class_with_two_protocols_is_no_tensor() -> None:
    """R61: what its method raises without an instance is no refusal of Arrow's."""
    with pytest.raises(AttributeError, match="Streams is a class and no tensor"):
        dlx.from_dlpack(Streams)
