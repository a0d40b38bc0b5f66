"""What is a tensor in no library, whatever its class: it stays in a tree and a call."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires


class Holder(dlx.ExchangeMixin, exchange="held"):
    """A tensor, if what it holds is one."""

    def __init__(self, held: Any) -> None:
        """Hold anything."""
        self.held = held


class Sparse:
    """As an array of pydata's sparse, which refuses to be made dense."""

    dtype = np.dtype("float64")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Refuse, as its library does."""
        raise RuntimeError("Cannot convert a sparse array to dense automatically.")


def pydata(name: str) -> Any:
    """Return an array of pydata's sparse, of a format."""
    sparse = pytest.importorskip("sparse", reason="sparse is not installed")
    return getattr(sparse, name).from_numpy(np.eye(2))


MADE: dict[str, Any] = {
    "stand-in": lambda: Sparse(),
    "COO": lambda: pydata("COO"),
    "GCXS": lambda: pydata("GCXS"),
    "DOK": lambda: pydata("DOK"),
    "in xarray": lambda: requires("xarray").DataArray(pydata("COO")),
    "scipy": lambda: requires("scipy.sparse").csr_array(np.eye(2)),
    "matrix of scipy": lambda: requires("scipy.sparse").coo_matrix(np.eye(2)),
    "strings": lambda: np.array(["a"]),
    "objects": lambda: np.array([1, "a"], object),
    "dates": lambda: np.array(["2026-11-28"], "M8[D]"),
    "fields": lambda: np.zeros(2, [("x", "f4")]),
    "column": lambda: requires("pandas").Series(["a"]),
    "array of Arrow": lambda: requires("pyarrow").array(["a"]),
}


@pytest.fixture(params=MADE)
def thing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Each of them."""
    if request.param == "stand-in":
        library: Any = ModuleType("sparse")
        library.SparseArray = Sparse
        monkeypatch.setitem(sys.modules, "sparse", library)
    return MADE[request.param]()


@pytest.fixture(params=[0, 1, 2], ids=["itself", "held", "held by a held"])
def leaf(request: pytest.FixtureRequest, thing: Any) -> Any:
    """Each of them, and instances of mixin classes that hold it."""
    for _ in range(request.param):
        thing = Holder(thing)
    return thing


def test_it_stays_in_a_tree(leaf: Any) -> None:
    """docs/convert.md, "Trees": beside tensors, which are converted."""
    for copy in (None, True):
        made = dlx.convert_tree([np.ones(2), {"x": leaf}], dlx.Tensor, copy=copy)
        assert type(made[0]) is dlx.Tensor
        assert made[1]["x"] is leaf


def test_a_strict_tree_refuses_it_and_says_where(leaf: Any) -> None:
    """docs/convert.md, "Trees": `strict=True` converts or refuses."""
    with pytest.raises((BufferError, RuntimeError, TypeError)) as refused:
        dlx.convert_tree([leaf], dlx.Tensor, strict=True)
    assert refused.value.__notes__[-1] == "at tree[0]"


def test_it_passes_a_bridge(leaf: Any) -> None:
    """docs/bridge.md, "Arguments": at each call, and as a result."""
    seen = []

    @dlx.bridge(dlx.Tensor)
    def function(x: Any, y: Any) -> Any:
        seen.append((type(x), y))
        return y

    for _ in range(3):
        assert function(np.ones(2), leaf) is leaf
        assert function(Holder(np.ones(2)), leaf) is leaf
    assert all(kind is dlx.Tensor and y is leaf for kind, y in seen)


def test_a_tensor_of_the_class_is_converted_after_it(leaf: Any) -> None:
    """What an instance holds says nothing of the next."""
    kind = dlx.bridge(np.ndarray)(lambda x: type(x))
    for _ in range(3):
        kind(leaf)
        assert kind(Holder(dlx.from_dlpack(np.ones(2)))) is np.ndarray
        assert kind(requires("torch").ones(2)) is np.ndarray


def test_out_is_refused(thing: Any) -> None:
    """docs/bridge.md, "out": nothing could write to it."""
    fill = dlx.bridge(np.ndarray)(lambda x, out: None)
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        fill(np.ones(2), out=Holder(thing))


class Failing:
    """A producer whose export raises."""

    def __init__(self, error: BaseException) -> None:
        """Keep what is raised."""
        self.error = error

    def __dlpack_device__(self) -> tuple[int, int]:
        """On the CPU."""
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        """Raise."""
        raise self.error


ERRORS = [
    *(BufferError("full"), RuntimeError("out of reach"), TypeError("of its code")),
    *(AttributeError("of its code"), MemoryError("none"), KeyboardInterrupt()),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("held", [False, True])
def test_the_error_of_a_tensor_is_raised(error: BaseException, held: bool) -> None:
    """R60: one that exists, and cannot be had."""
    x = Holder(Failing(error)) if held else Failing(error)
    bridged: Any = dlx.bridge(np.ndarray)(lambda x: x)
    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            dlx.convert_tree([x], np)
        assert raised.value is error
        with pytest.raises(type(error)) as raised:
            bridged(x)
        assert raised.value is error


@pytest.mark.parametrize(
    "x",
    [
        np.ones(2, ">f8"),
        np.ma.masked_array([1, 2], [False, True]),
        np.ones(2, "longdouble"),
        Holder(np.ones(2, ">f8")),
    ],
    ids=["other order", "masked", "longdouble", "other order, held"],
)
def test_numbers_that_dlpack_lacks_are_refused(x: Any) -> None:
    """Their own libraries have them as tensors."""
    with pytest.raises(BufferError):
        dlx.convert_tree([x], dlx.Tensor)
    with pytest.raises(BufferError):
        dlx.bridge(dlx.Tensor)(lambda x: x)(x)


@pytest.mark.parametrize("value", [None, [1.0], "text"], ids=repr)
def test_an_instance_that_exports_no_array_is_refused(value: Any) -> None:
    """Its class promises one."""
    uses: list[Any] = [dlx.bridge(np.ndarray)(abs)]
    for use in (*uses, lambda x: dlx.convert_tree([x], np)):
        with pytest.raises(TypeError, match=r"Holder\.held is .*; expected an object"):
            use(Holder(value))


def test_an_instance_without_what_it_exports_is_refused() -> None:
    """Its class promises a tensor."""
    x = Holder.__new__(Holder)
    with pytest.raises(AttributeError, match="exchange='held'"):
        dlx.convert_tree([x], np)


def test_instances_that_export_one_another_are_refused() -> None:
    """They have no end."""
    x = Holder(None)
    x.held = x
    with pytest.raises(RecursionError):
        dlx.convert_tree([x], np)


def test_an_error_of_a_module_with_the_name_of_a_library_comes_out() -> None:
    """It is no array of sparse: nothing says that it may stay."""
    own = type("Array", (Sparse,), {"__module__": "sparse.own"})
    for tree in ([own()], {"x": Holder(own())}):
        with pytest.raises(RuntimeError, match="to dense"):
            dlx.convert_tree(tree, dlx.Tensor)
