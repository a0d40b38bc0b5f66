"""What a class may be that takes `dlx.ExchangeMixin`."""

from __future__ import annotations

import abc
import enum
import types
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import dlx
import numpy as np
import pytest
import tvm_ffi
from numpy.typing import NDArray
from support.dlx_producers import ByMethod, Stored
from support.optional_libraries import requires

Array = NDArray[Any]
T = TypeVar("T")

GRID: Array = np.arange(6.0).reshape(2, 3)


class Slotted(dlx.ExchangeMixin, exchange="data"):
    """Has no dictionary, and no weak references."""

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        """Keep `data`."""
        self.data = data


class Referable(dlx.ExchangeMixin, exchange="data"):
    """Has no dictionary, but weak references."""

    __slots__ = ("__weakref__", "data")

    def __init__(self, data: Any) -> None:
        """Keep `data`."""
        self.data = data


@dataclass
class Record(dlx.ExchangeMixin, exchange="data"):
    """A dataclass."""

    data: Any


@dataclass(frozen=True)
class Frozen(dlx.ExchangeMixin, exchange="data"):
    """A dataclass that nobody can change."""

    data: Any


@dataclass(slots=True)
class SlottedRecord(dlx.ExchangeMixin, exchange="data"):
    """A class that is made twice, the second time without `exchange=`."""

    data: Any


@dataclass(frozen=True, slots=True)
class WithDefault(dlx.ExchangeMixin, exchange="data"):
    """A slot whose name was a class attribute while the class was made first."""

    data: Any = None


class Typed(dlx.ExchangeMixin, Generic[T], exchange="data"):
    """Generic, behind the mixin."""

    def __init__(self, data: T) -> None:
        """Keep `data`."""
        self.data = data


class TypedFirst(Generic[T], dlx.ExchangeMixin, exchange="data"):
    """Generic, before the mixin."""

    def __init__(self, data: T) -> None:
        """Keep `data`."""
        self.data = data


class Labelled:
    """A Python base with storage, an `__init__` and a keyword of its own."""

    flavour = ""

    def __init__(self, data: Any) -> None:
        """Keep `data` and a label."""
        self.data = data
        self.label = "unnamed"

    def __init_subclass__(cls, *, flavour: str = "", **keywords: Any) -> None:
        """Take `flavour`."""
        super().__init_subclass__(**keywords)
        cls.flavour = flavour


class BesideBase(dlx.ExchangeMixin, Labelled, exchange="data", flavour="sweet"):
    """The mixin before another base."""


class BehindBase(Labelled, dlx.ExchangeMixin, exchange="data", flavour="sour"):
    """The mixin behind another base."""


class Grandchild(BesideBase, flavour="bitter"):
    """Says nothing about exports itself."""


class Pair(dlx.ExchangeMixin, namedtuple("Pair", "data"), exchange="data"):
    """A tuple; `data` is computed from it."""


class Abstract(dlx.ExchangeMixin, abc.ABC):
    """Says how, and not yet what."""

    @abc.abstractmethod
    def __dlx_export__(self) -> Any:
        """Give what is exported."""


class Concrete(Abstract):
    """Says what."""

    def __init__(self, data: Any) -> None:
        """Keep `data`."""
        self.data = data

    def __dlx_export__(self) -> Any:
        """Give what is kept."""
        return self.data


class Sealed(type):
    """A metaclass whose classes take no attributes."""

    def __setattr__(cls, name: str, value: Any) -> None:
        """Refuse."""
        raise TypeError(f"{cls.__name__} is sealed")


class Constant(dlx.ExchangeMixin, metaclass=Sealed, exchange="data"):
    """A class whose attributes Python code cannot set."""

    def __init__(self, data: Any) -> None:
        """Keep `data`."""
        self.data = data


class Mapping(dlx.ExchangeMixin, dict[str, Any], exchange="data"):
    """A dict."""

    def __init__(self, data: Any) -> None:
        """Keep `data`, and hold an item."""
        super().__init__(item=1)
        self.data = data


class Subarray(dlx.ExchangeMixin, np.ndarray[Any, Any]):  # type: ignore[misc]
    """A NumPy array."""

    def __new__(cls, data: Any) -> Subarray:
        """View `data`."""
        return np.asarray(data).view(cls)

    def __dlx_export__(self) -> Any:
        """Give the array itself, as NumPy's class."""
        return self.view(np.ndarray)


class SubarrayFirst(np.ndarray[Any, Any], dlx.ExchangeMixin):  # type: ignore[misc]
    """A NumPy array, whose own methods come first."""

    def __new__(cls, data: Any) -> SubarrayFirst:
        """View `data`."""
        return np.asarray(data).view(cls)

    def __dlx_export__(self) -> Any:
        """Give the array itself, as NumPy's class."""
        return self.view(np.ndarray)


KINDS: dict[str, Any] = {
    "__init__ only": Stored,
    "method": ByMethod,
    "__slots__": Slotted,
    "__slots__ with weak references": Referable,
    "dataclass": Record,
    "frozen dataclass": Frozen,
    "slotted dataclass": SlottedRecord,
    "slotted dataclass with a default": WithDefault,
    "generic behind the mixin": Typed,
    "generic before the mixin": TypedFirst,
    "beside a base": BesideBase,
    "behind a base": BehindBase,
    "grandchild": Grandchild,
    "named tuple": Pair,
    "abstract base": Concrete,
    "metaclass": Constant,
    "dict": Mapping,
    "ndarray": Subarray,
    "ndarray first": SubarrayFirst,
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def module_class() -> Any:
    """Make a class that is a torch module."""
    torch = requires("torch")

    class Layer(dlx.ExchangeMixin, torch.nn.Module, exchange="weights"):  # type: ignore[misc, name-defined]
        """A module whose buffer is exported."""

        def __init__(self, data: Any) -> None:
            super().__init__()
            self.register_buffer("weights", torch.from_dlpack(data))

    return Layer


def tensor_class() -> Any:
    """Make a class that is a torch tensor."""
    torch = requires("torch")

    class Tensor(dlx.ExchangeMixin, torch.Tensor):  # type: ignore[misc, name-defined]
        """A tensor that is exported as one."""

        @staticmethod
        def __new__(cls: Any, data: Any) -> Any:
            return torch.from_dlpack(data).as_subclass(cls)

        def __init__(self, data: Any) -> None:
            pass

        def __dlx_export__(self) -> Any:
            return self.as_subclass(torch.Tensor)

    return Tensor


def check_each_way(kind: Any) -> None:
    """Export by capsule and table, and make instances both ways."""
    instance = kind(GRID)
    assert np.array_equal(np.from_dlpack(instance), GRID)
    assert np.array_equal(dlx.from_dlpack(instance).numpy(), GRID)
    assert np.array_equal(np.from_dlpack(tvm_ffi.from_dlpack(instance)), GRID)
    echo: Any = tvm_ffi.get_global_func("testing.echo")
    for made in (kind.from_dlpack(GRID), echo(instance)):
        assert type(made) is kind
        assert dlx.from_dlpack(made).data_ptr == GRID.ctypes.data


@every_kind
def test_every_kind_of_class_goes_out_and_comes_back(kind: Any) -> None:
    """R112, R128, R130: by capsule and by table."""
    check_each_way(kind)


@pytest.mark.parametrize("make", [module_class, tensor_class])
def test_classes_of_torch_go_out_and_come_back(make: Callable[[], Any]) -> None:
    """R112, R128, R130: as bases beside the mixin."""
    check_each_way(make())


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_base_that_exports_itself_does_not_export_in_place_of_the_class(
    library: str,
) -> None:
    """R112, R128: though it comes first, capsule and table are of one tensor."""
    base = {"numpy": np.ndarray, "torch": requires("torch").Tensor}[library]

    class Shown(base, dlx.ExchangeMixin, exchange="shown"):  # type: ignore[misc, valid-type]
        shown = GRID

    for kind, expected in ((Shown, GRID), (type("Sub", (Shown,), {}), GRID)):
        zeros = np.zeros(3).view(kind) if library == "numpy" else kind(3)
        assert np.array_equal(np.from_dlpack(zeros), expected)
        assert np.array_equal(dlx.from_dlpack(zeros).numpy(), expected)
        assert zeros.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("name", ["__dlpack__", "__dlpack_device__"])
def test_a_class_with_a_protocol_of_its_own_is_refused(name: str) -> None:
    """R112: who reads the table would see another tensor; `__dlx_export__` is both."""
    with pytest.raises(TypeError, match=f"Own defines {name}, .*define __dlx_export__"):
        type(
            "Own", (dlx.ExchangeMixin,), {name: object(), "data": GRID}, exchange="data"
        )

    class Own(dlx.ExchangeMixin):
        def __dlx_export__(self) -> Any:
            return GRID + 1

    for x in (np.from_dlpack(Own()), dlx.from_dlpack(Own()).numpy()):
        assert np.array_equal(x, GRID + 1)


def test_a_class_that_is_made_again_has_no_protocol_of_its_own() -> None:
    """R128: `dataclass(slots=True)` makes it of what the first one has got."""

    class Base:
        __slots__ = ()

        def __dlpack__(self, **keywords: Any) -> Any:
            raise AssertionError

        __dlpack_device__ = __dlpack__

    @dataclass(slots=True)
    class Made(Base, dlx.ExchangeMixin, exchange="data"):
        data: Any

    assert np.array_equal(np.from_dlpack(Made(GRID)), GRID)
    assert np.array_equal(dlx.from_dlpack(Made(GRID)).numpy(), GRID)


@every_kind
def test_every_kind_of_class_has_a_table_of_its_own(kind: Any) -> None:
    """R112: in its own dictionary, and not its base's."""
    own = vars(kind)["__dlpack_c_exchange_api__"]
    assert own is not vars(kind.__mro__[1]).get("__dlpack_c_exchange_api__")


def test_an_enum_is_exported_by_the_value_of_its_members() -> None:
    """R1: its metaclass makes the members before it makes the class known."""

    class Basis(dlx.ExchangeMixin, enum.Enum, exchange="vector"):
        X = (1.0, 0.0)
        Y = (0.0, 1.0)

        @property
        def vector(self) -> Array:
            return np.array(self.value)

    assert np.from_dlpack(Basis.Y).tolist() == [0, 1]


def test_the_mixin_adds_no_storage() -> None:
    """It has no slots, no dictionary and no weak references of its own."""
    assert not hasattr(Slotted(GRID), "__dict__")
    assert not hasattr(Slotted(GRID), "__weakref__")
    assert Stored.__basicsize__ == Labelled.__basicsize__
    assert Mapping(GRID) == {"item": 1}
    with pytest.raises(AttributeError):
        Slotted(GRID).other = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "flavour"),
    [(BesideBase, "sweet"), (BehindBase, "sour"), (Grandchild, "bitter")],
)
def test_class_keywords_of_other_bases_reach_them(kind: Any, flavour: str) -> None:
    """`__init_subclass__` is a chain."""
    assert kind.flavour == flavour


def test_a_class_made_without_a_class_statement_is_as_good() -> None:
    """`types.new_class` and `type` pass the keywords on too."""
    name, bases, body = "Made", (dlx.ExchangeMixin,), {"data": GRID}
    by_new_class = types.new_class(
        name, bases, {"exchange": "data"}, lambda space: space.update(body)
    )
    by_type: Any = type(name, bases, dict(body), exchange="data")
    for kind in (by_new_class, by_type):
        assert np.array_equal(np.from_dlpack(kind()), GRID)


@pytest.mark.parametrize("module", [None, 5, "", "not.there"])
def test_a_class_of_an_odd_module_is_accepted(module: Any) -> None:
    """CPython takes anything for `__module__`."""
    body = {"data": GRID, "__module__": module}
    odd: Any = type("Odd", (dlx.ExchangeMixin,), body, exchange="data")
    assert np.array_equal(np.from_dlpack(odd()), GRID)
