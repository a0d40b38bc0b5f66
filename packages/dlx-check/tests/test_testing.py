"""`dlx_check.testing.check_mixin`: what keeps the rules, and what breaks just one.

docs/classes.md, Testing your class.
"""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import dlx
import numpy as np
import pytest
from dlx_check.testing import check_mixin
from dlx_check.testing.case import Case
from dlx_check.testing.exports import EXPORTS
from dlx_check.testing.instances import INSTANCES
from dlx_check.testing.life import LIFE
from support.dlx_producers import ByMethod, Stored
from support.optional_libraries import requires
from support.python_process import run_python


def array() -> Any:
    """New memory."""
    return np.arange(1.0, 7.0).reshape(2, 3)


# Classes that keep the rules


def readonly() -> Any:
    """Memory that must not be written."""
    made = array()
    made.flags.writeable = False
    return made


SOURCES: dict[str, Callable[[], Any]] = {
    "numpy": array,
    "strided": lambda: array()[:, ::-2],
    "read-only": readonly,
    "scalar": lambda: np.array(3),
    "bool": lambda: np.array([True, False]),
    "bfloat16": lambda: requires("torch").ones(3, dtype=requires("torch").bfloat16),
    "torch": lambda: requires("torch").ones(2, 3),
    "jax": lambda: requires("jax.numpy").arange(1, 4, dtype="float32"),
    "dlx": lambda: dlx.from_dlpack(array()),
    "buffer": lambda: bytearray(b"abc"),
    "mixin": lambda: Stored(array()),
}


@pytest.mark.parametrize("kind", [Stored, ByMethod])
@pytest.mark.parametrize("source", SOURCES)
def test_a_class_over_anything_keeps_the_rules(source: str, kind: Any) -> None:
    check_mixin(kind, lambda: kind(SOURCES[source]()))


@dataclass(frozen=True, slots=True)
class Labelled(dlx.ExchangeMixin, exchange="data"):
    """A class that cannot be made from a tensor alone, hashed or weakly referred to."""

    data: Any
    labels: list[str]

    @classmethod
    def __dlx_import__(cls, tensor: Any) -> Any:
        """Number the rows."""
        return cls(tensor, [str(row) for row in range(tensor.shape[0])])

    def __dlx_like__(self, tensor: Any) -> Any:
        """Keep the labels."""
        return type(self)(tensor, self.labels)


class Floats(dlx.ExchangeMixin):
    """A class with memory and an allocator of its own, for rows of float32 alone."""

    def __init__(self, size: int) -> None:
        """Allocate."""
        self.memory = (ctypes.c_float * size)(*map(float, range(size)))

    def __dlx_export__(self) -> Any:
        """Export the memory."""
        address = ctypes.addressof(self.memory)
        return dlx.from_pointer(
            address, (len(self.memory),), "float32", owner=self.memory
        )

    @classmethod
    def __dlx_import__(cls, tensor: Any) -> Any:
        """Copy."""
        if tensor.dtype != "float32":
            raise BufferError(f"it is of {tensor.dtype}")
        made = cls(tensor.size)
        made.memory[:] = [float(x) for x in memoryview(tensor).tolist()]
        return made

    @classmethod
    def __dlx_empty__(cls, shape: Any, dtype: Any, device: Any) -> Any:
        """Allocate."""
        if (dtype, device, len(shape)) != ("float32", "cpu", 1):
            raise BufferError(f"{dtype}{shape}")
        return cls(shape[0])


class Signal(dlx.ExchangeMixin, np.ndarray[Any, Any]):  # type: ignore[misc]
    """An array of NumPy itself."""

    def __dlx_export__(self) -> Any:
        """Export the plain array."""
        return self.view(np.ndarray)

    @classmethod
    def __dlx_import__(cls, tensor: Any) -> Any:
        """View the plain array."""
        return tensor.numpy().view(cls)


class Final(Stored):
    """A class without subclasses."""

    def __init_subclass__(cls) -> None:
        """Refuse."""
        raise TypeError("there are no subclasses of Final")


class Doubled(ByMethod):
    """A class that computes what it exports."""

    def __dlx_export__(self) -> Any:
        """Compute."""
        return self.data * 2

    @classmethod
    def __dlx_import__(cls, tensor: Any) -> Any:
        """Halve."""
        return cls(tensor.numpy() / 2)


def test_classes_of_many_forms_keep_the_rules() -> None:
    check_mixin(Labelled, lambda: Labelled(array(), ["a", "b"]))
    check_mixin(Floats, lambda: Floats(5))
    check_mixin(Signal, lambda: array().view(Signal))
    check_mixin(Final, lambda: Final(array()))


def test_a_class_may_compute_what_it_exports() -> None:
    check_mixin(Doubled, lambda: Doubled(array()), shares_memory=False)


# Classes that break one rule


class Silent(Stored):
    """A base that does not tell dlx of its subclasses."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Forget the keywords."""


class Unregistered(Silent):
    """A class that dlx does not know of, while it knows of its subclasses."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Leave out the base."""
        super(Silent, cls).__init_subclass__(**keywords)


def beside_the_mixin(base: type) -> Any:
    """Make a class whose first base overrides a method: its own body may not."""
    return type(base.__name__, (base, Stored), {})


@beside_the_mixin
class OtherMemory:
    """The mixin's method is overridden."""

    def __dlpack__(self, **keywords: Any) -> Any:
        """Export a copy."""
        copied = Stored(self.data.copy())  # type: ignore[attr-defined]
        return copied.__dlpack__(**keywords)


@beside_the_mixin
class OtherDevice:
    """The mixin's method is overridden."""

    def __dlpack_device__(self) -> Any:
        """Be wrong."""
        return (1, 1)


@beside_the_mixin
class AlwaysVersioned:
    """One keyword has another default."""

    def __dlpack__(self, *, max_version: Any = None, **keywords: Any) -> Any:
        """Export."""
        keywords["max_version"] = max_version or (1, 3)
        return super().__dlpack__(**keywords)  # type: ignore[misc]


def forgetting(keyword: str) -> Any:
    """Make a class that ignores a keyword."""

    @beside_the_mixin
    class Forgetting:
        def __dlpack__(self, **keywords: Any) -> Any:
            keywords[keyword] = None
            return super().__dlpack__(**keywords)  # type: ignore[misc]

    return Forgetting


@beside_the_mixin
class Raises:
    """Another exception is raised."""

    def __dlpack__(self, *, stream: Any = None, **keywords: Any) -> Any:
        """Export."""
        if stream is not None:
            raise ValueError("no streams here")
        return super().__dlpack__(**keywords)  # type: ignore[misc]


class Reversed(Stored):
    """The import changes the order."""

    @classmethod
    def __dlx_import__(cls, tensor: Any) -> Any:
        """Reverse."""
        return cls(tensor.numpy()[::-1])

    def __dlx_like__(self, tensor: Any) -> Any:
        """Do not."""
        return type(self)(tensor)


class Compact(Stored):
    """The import takes all memory for row-major."""

    @classmethod
    def __dlx_import__(cls, tensor: Any) -> Any:
        """Ignore the strides."""
        return cls(
            dlx.from_pointer(
                tensor.data_ptr,
                tensor.shape,
                tensor.dtype,
                owner=tensor,
                readonly=tensor.readonly,
            )
        )


class Casting(Stored):
    """The import makes all numbers of the dtype that the class likes."""

    @classmethod
    def __dlx_import__(cls, tensor: Any) -> Any:
        """Cast."""
        return cls(tensor.numpy().astype(array().dtype, copy=False))


class Dangling(Stored):
    """The import forgets who owns the memory."""

    @classmethod
    def __dlx_import__(cls, tensor: Any) -> Any:
        """Take the address alone."""
        address, readonly = tensor.data_ptr, tensor.readonly
        strides = tensor.strides
        made = dlx.from_pointer(
            address, tensor.shape, tensor.dtype, strides=strides, readonly=readonly
        )
        return cls(made)


class Writable(Stored):
    """The import forgets that memory is read-only."""

    @classmethod
    def __dlx_import__(cls, tensor: Any) -> Any:
        """Take the address and the owner alone."""
        made = dlx.from_pointer(
            tensor.data_ptr,
            tensor.shape,
            tensor.dtype,
            strides=tensor.strides,
            owner=tensor,
        )
        return cls(made)


class Same(Stored):
    """The hook ignores the tensor."""

    def __dlx_like__(self, tensor: Any) -> Any:
        """Be like itself."""
        return self


class Zeros(Stored):
    """The hook ignores what the tensor holds."""

    def __dlx_like__(self, tensor: Any) -> Any:
        """Be new."""
        return type(self)(np.zeros(tensor.shape))


class Reused(Stored):
    """The allocator has but one piece of memory."""

    memory = array()

    @classmethod
    def __dlx_empty__(cls, shape: Any, dtype: Any, device: Any) -> Any:
        """Give it."""
        return cls.memory


class WrongType(Stored):
    """The allocator ignores the dtype."""

    @classmethod
    def __dlx_empty__(cls, shape: Any, dtype: Any, device: Any) -> Any:
        """Allocate bytes."""
        return np.zeros(shape, "uint8")


class Fixed(Stored):
    """The import knows one class."""

    @staticmethod
    def __dlx_import__(tensor: Any) -> Any:
        """Make that."""
        return Fixed(tensor)


class Brief(Floats):
    """The memory dies with the instance."""

    def __dlx_export__(self) -> Any:
        """Name no owner."""
        address = ctypes.addressof(self.memory)
        return dlx.from_pointer(address, (len(self.memory),), "float32")


def hoarding(what: Callable[[Any], Any]) -> Any:
    """Make a class that keeps something at each export."""

    class Hoarding(Stored):
        kept: ClassVar[list[Any]] = []

        def __dlx_export__(self) -> Any:
            self.kept.append(what(self))
            return self.data

    return Hoarding


class OfOneThread(Stored):
    """The data belongs to a thread."""

    def __init__(self, data: Any) -> None:
        """Keep it there."""
        self.local = threading.local()
        self.local.data = data

    def __dlx_export__(self) -> Any:
        """Take it from there."""
        return self.local.data


TABLE = "has an exchange table of its own"
ALONE: list[tuple[Any, str, str]] = [
    (Unregistered, f"the class {TABLE}", "super().__init_subclass__"),
    (OtherMemory, "exports what dlx reads", "list the mixin before other bases"),
    (OtherDevice, "names the device of the export", "do not override"),
    (AlwaysVersioned, "gets an unversioned capsule", "pass max_version on"),
    (forgetting("copy"), "copy=True gives memory of its own", "pass copy on"),
    (forgetting("dl_device"), "a device that cannot be served", "pass the keyword on"),
    (forgetting("stream"), "a stream for memory on the CPU", "pass the keyword on"),
    (Raises, "a stream for memory on the CPU is a BufferError", "pass the keyword on"),
    (Reversed, "the tensor that it was given", "define the class method"),
    (Compact, "from_dlpack reads strides", "tensor.strides"),
    (Casting, "from_dlpack changes no dtype", "for a dtype that the class has not"),
    (Dangling, "keeps the memory alive that it was made from", "owner="),
    (Writable, "read-only memory stays read-only", "readonly=tensor.readonly"),
    (Same, "__dlx_like__ makes an instance over the tensor", "a new instance"),
    (Zeros, "__dlx_like__ makes an instance over the tensor", "a new instance"),
    (Reused, "__dlx_empty__ allocates new, writable memory", "another"),
    (WrongType, "__dlx_empty__ allocates new, writable memory", "that shape, dtype"),
    (Silent, f"a subclass {TABLE}", "super().__init_subclass__"),
    (Fixed, "of a subclass makes an instance of the subclass", "instances of cls"),
    (Brief, "an export keeps the memory alive", "pass owner=self"),
    (hoarding(lambda x: x), "exports leave nothing behind", "keep no reference"),
    (hoarding(lambda x: x.data), "exports leave nothing behind", "keep no reference"),
    (hoarding(lambda x: [0]), "exports leave nothing behind", "keep no reference"),
    (OfOneThread, "threads may export at the same time", "keep no state of a thread"),
]


def instance(kind: Any) -> Any:
    """An instance with memory of its own."""
    return kind(64) if issubclass(kind, Floats) else kind(array())


@pytest.mark.parametrize(
    ("kind", "rule", "change"), ALONE, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_class_that_breaks_one_rule_is_told_which(
    kind: Any, rule: str, change: str
) -> None:
    """What it has to change, too; no other rule finds fault with it."""
    broken = []
    with warnings.catch_warnings():
        # The first export of a class that dlx does not know of warns.
        warnings.simplefilter("ignore", RuntimeWarning)
        for check in (*EXPORTS, *INSTANCES, *LIFE):
            try:
                check(Case(kind, lambda: instance(kind), True))
            except AssertionError as error:
                broken.append(str(error))
        assert len(broken) == 1, broken
        assert rule in broken[0]
        assert change in broken[0]
        assert broken[0].startswith(kind.__qualname__)
        with pytest.raises(AssertionError) as raised:
            check_mixin(kind, lambda: instance(kind))
    assert str(raised.value).split(", but ")[0] == broken[0].split(", but ")[0]


# Faults that other rules notice, too


class Unreadable(Stored):
    """There is nothing to export."""

    def __dlx_export__(self) -> Any:
        """Export no tensor."""
        return "text"


class Unsteady(Stored):
    """Each export has another shape."""

    def __dlx_export__(self) -> Any:
        """Turn it."""
        self.data = self.data.T
        return self.data


class Unimportable(Stored):
    """The constructor needs more than a tensor."""

    def __init__(self, data: Any, labels: list[str]) -> None:
        """Keep them."""
        super().__init__(data)
        self.labels = labels


FIRST: list[tuple[Any, Callable[[], Any], str]] = [
    (Stored, lambda: ByMethod(array()), "make returns new instances of the class, but"),
    (Stored, lambda: 1 // 0, "make raised ZeroDivisionError"),
    (Stored, lambda: Stored(np.ones(0)), "the instance has no elements"),
    (Unreadable, lambda: Unreadable(None), "instances can be exported, but"),
    (Unsteady, lambda: Unsteady(array()), "each export describes the same tensor"),
    (Doubled, lambda: Doubled(array()), "exports share memory, but .*shares_memory="),
    (
        Unimportable,
        lambda: Unimportable(array(), []),
        r"raised TypeError.* 'labels'\); define a class method, def __dlx_import__",
    ),
]


@pytest.mark.parametrize(("kind", "make", "message"), FIRST)
def test_the_first_rule_that_is_broken_is_named(
    kind: Any, make: Any, message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        check_mixin(kind, make)


def test_the_exception_of_a_class_is_the_cause() -> None:
    with pytest.raises(AssertionError) as raised:
        check_mixin(Unimportable, lambda: Unimportable(array(), []))
    assert type(raised.value.__cause__) is TypeError


@pytest.mark.parametrize("cls", [np.ndarray, dlx.Tensor, dlx.ArrayInterfaceMixin, 3])
def test_what_is_no_exchange_class_is_a_type_error(cls: Any) -> None:
    with pytest.raises(TypeError, match=r"no subclass of dlx\.ExchangeMixin"):
        check_mixin(cls, array)


def test_importing_dlx_does_not_import_the_checks() -> None:
    code = "import sys, dlx; assert 'dlx_check.testing' not in sys.modules"
    assert run_python(code) == (0, "", "")


def test_the_checks_need_neither_numpy_nor_a_test_framework() -> None:
    code = """
import sys
sys.modules["numpy"] = sys.modules["pytest"] = None
import dlx
from dlx_check.testing import check_mixin

class Bytes(dlx.ExchangeMixin, exchange="data"):
    def __init__(self, data):
        self.data = data

check_mixin(Bytes, lambda: Bytes(bytearray(b"abc")))
"""
    assert run_python(code) == (0, "", "")
