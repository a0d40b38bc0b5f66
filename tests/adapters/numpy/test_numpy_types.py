"""Which objects are read as NumPy arrays, and which are asked for `__dlpack__`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dlx
import numpy as np
import pytest
from support.fake_producers import c_function, listening
from support.fake_table import FROM_PY, table_class
from support.python_process import run_python


@pytest.mark.parametrize("base", [np.ndarray, np.matrix, np.recarray, np.memmap])
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_an_array_of_a_subclass_is_asked_for_two_attributes(base: type[Any]) -> None:
    """R60, R63, R116: whose `__dlpack__` it has, and whether elements are masked."""
    plain = np.arange(6.0).reshape(2, 3)
    kind = listening(base)
    array = plain.view(kind)
    kind.heard.clear()
    tensor = dlx.from_dlpack(array)
    assert kind.heard == ["__dlpack__", "mask"]
    assert (tensor.data_ptr, tensor.shape) == (plain.ctypes.data, (2, 3))


def test_a_memory_mapped_file_is_read_in_place(tmp_path: Path) -> None:
    """R15, R39: and stays mapped."""
    path = tmp_path / "elements"
    np.arange(5, dtype="int16").tofile(path)
    tensor = dlx.from_dlpack(np.memmap(path, "int16", "r", 4, (3,)))
    assert tensor.readonly
    assert tensor.numpy().tolist() == [2, 3, 4]


def own(base: type[Any], method: str = "__dlpack__") -> type[Any]:
    """Make a subclass that answers a method of the protocol itself, and notes it."""
    asked: list[str] = []

    def answer(self: Any, **keywords: Any) -> Any:
        asked.append(method)
        return getattr(np.ndarray, method)(self, **keywords)

    return type("Own", (base,), {method: answer, "asked": asked})


OWN = {
    "itself": own(np.ndarray),
    "in a class between": type("Below", (own(np.ndarray),), {}),
    "in a class beside": type("Beside", (own(object), np.ndarray), {}),
    "for the device": own(np.ndarray, "__dlpack_device__"),
    "for a masked array": own(np.ma.MaskedArray),
}


@pytest.mark.parametrize("kind", OWN.values(), ids=OWN)
def test_a_subclass_that_answers_the_protocol_is_asked(kind: type[Any]) -> None:
    """R32, R60: each time."""
    array: Any = np.arange(3).view(kind)
    for _ in range(2):
        kind.asked.clear()
        assert dlx.from_dlpack(array).shape == (3,)
        assert kind.asked


def test_a_subclass_with_a_table_of_its_own_is_read_through_that() -> None:
    """R117: rung 1 comes first."""
    failing: dict[str, Any] = {FROM_PY: c_function("fail_with_value_error")}
    table = table_class(**failing).__dlpack_c_exchange_api__
    kind = type("WithTable", (np.ndarray,), {"__dlpack_c_exchange_api__": table})
    with pytest.raises(ValueError, match="fake value error"):
        dlx.from_dlpack(np.arange(3).view(kind))


def test_an_object_that_claims_to_be_an_array_is_not_read_as_one() -> None:
    """R61: neither by its `__class__` nor by its metaclass."""

    class Meta(type):
        def mro(cls) -> list[type]:
            return [cls, object]

        def __subclasscheck__(cls, other: type) -> bool:
            return True

    class Liar(metaclass=Meta):
        __class__ = np.ndarray  # type: ignore[assignment]

    assert isinstance(Liar(), np.ndarray)
    with pytest.raises(AttributeError, match="has no __dlpack__"):
        dlx.from_dlpack(Liar())


# What is no NumPy, or not one that dlx knows

ASKED = """
    import sys, types, dlx

    def is_asked(x):
        try:
            dlx.from_dlpack(x)
        except (KeyError, AttributeError) as error:
            return "asked" in str(error) or "no __dlpack__" in str(error)
        return "__dlpack_device__" in getattr(x, "heard", [])

    class ndarray:
        __slots__ = tuple("abcdefghijkl")

        def __init__(self, *arguments, **keywords):
            pass

        def __dlpack__(self, **keywords):
            raise KeyError("asked")

        def __dlpack_device__(self):
            return (1, 0)

        __array_interface__ = {"data": (0, False)}
        base, flags = None, types.SimpleNamespace(num=0)
        dtype = types.SimpleNamespace(
            kind="i", char="h", byteorder="=", type=int, num=3
        )

    def install(kind):
        numpy = types.SimpleNamespace(ndarray=kind, __version__="2.4.0")
        sys.modules["numpy"] = numpy
"""
IMMUTABLE = """
    import ctypes
    flags = ctypes.c_ulong.from_address(id(ndarray) + 152 + object.__basicsize__)
    assert flags.value == ndarray.__flags__
    flags.value |= 1 << 8
    install(ndarray)
"""
NO_NUMPY = {
    "nothing": ("sys.modules['numpy'] = None", "ndarray()"),
    "an empty module": (
        "sys.modules['numpy'] = types.ModuleType('numpy')",
        "ndarray()",
    ),
    "a Python class": ("install(ndarray)", "ndarray()"),
    "an instance": ("install(ndarray())", "ndarray()"),
    "dict": ("install(dict)", "{}"),
    "object": ("install(object)", "object()"),
    "a class that seems to be of C": (IMMUTABLE, "ndarray()"),
}


@pytest.mark.skipif(sys.maxsize < 2**32, reason="the place of tp_flags")
@pytest.mark.parametrize(("setup", "x"), NO_NUMPY.values(), ids=NO_NUMPY)
def test_what_stands_in_for_numpy_is_not_read(setup: str, x: str) -> None:
    """R116: objects of its classes are asked, if they can be."""
    script = f"{ASKED}\n    {setup}\n    assert is_asked({x})"
    assert run_python(script) == (0, "", "")


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        ("pass", False),
        ("np.__version__ = '20.0.0'", False),
        ("np.ndarray = type('ndarray', (np.ndarray,), {})", False),
        ("del np.ndarray", False),
        ("del sys.modules['numpy']", False),
        ("for name in CORES: sys.modules[name] = object()", True),
        ("for name in CORES: sys.modules.pop(name, None)", True),
    ],
)
def test_a_numpy_that_dlx_does_not_know_is_asked(change: str, asked: bool) -> None:
    """R116: through `__dlpack__`, which every NumPy has."""
    script = f"""{ASKED}
    import numpy as np
    from support.fake_producers import listening

    CORES = ["numpy._core._multiarray_umath", "numpy.core._multiarray_umath"]
    array = np.arange(3).view(listening(np.ndarray))
    {change}
    assert is_asked(array) == {asked}
    assert dlx.from_dlpack(array).shape == (3,)
    """
    assert run_python(script) == (0, "", "")


def test_numpy_is_not_imported_to_read_what_is_none() -> None:
    """R116: an object without any protocol."""
    script = (
        f"{ASKED}\n    assert is_asked(object())\n    assert 'numpy' not in sys.modules"
    )
    assert run_python(script) == (0, "", "")
