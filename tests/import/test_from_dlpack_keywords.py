"""`from_dlpack` answers the usual keywords without parsing; the rest says the same."""

import ctypes
from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

torch: Any = requires("torch")


class Described:
    """An object that has `__dlpack__` and notes its keywords."""

    def __init__(self) -> None:
        """Make the array that is exported."""
        self.array = np.arange(3.0)
        self.asked: list[dict[str, object]] = []

    def __dlpack__(self, **keywords: Any) -> object:
        """Export the array."""
        self.asked.append(keywords)
        return self.array.__dlpack__(max_version=(1, 0))

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU."""
        return (1, 0)


class Name(str):
    """A string that is not exactly a `str`."""


def other(text: str) -> str:
    """The same characters in a string that is not interned."""
    return "".join(list(text))


SOURCES: dict[str, Callable[[], object]] = {
    "ndarray": lambda: np.arange(3.0),
    "empty ndarray": lambda: np.zeros((0, 3)),
    "strided ndarray": lambda: np.arange(6.0)[::-2],
    "unreadable ndarray": lambda: np.array([object()]),
    "ndarray subclass": lambda: np.arange(3.0).view(np.recarray),
    "torch": lambda: torch.arange(3.0),
    "torch view": lambda: torch.arange(6.0).view(2, 3).T,
    "empty torch": lambda: torch.zeros(0, 3),
    "torch that records": lambda: torch.ones(3, requires_grad=True),
    "view that records": lambda: torch.ones(3, requires_grad=True)[1:],
    "conjugated torch": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "parameter": lambda: torch.nn.Parameter(torch.ones(3), requires_grad=False),
    "tensor": lambda: dlx.from_dlpack(np.arange(3.0)),
    "copied tensor": lambda: dlx.from_dlpack(np.arange(3.0), copy=True),
    "described": Described,
    "bytes": lambda: b"abc",
    "capsule": lambda: np.arange(3.0).__dlpack__(),
    "no tensor": lambda: 3,
    "class": lambda: np.ndarray,
}
KEYWORDS: list[dict[str, object]] = [
    {"copy": None},
    {"copy": False},
    {"copy": True},
    {"copy": 0},
    {"copy": np.True_},
    {"copy": "no"},
    {"device": None},
    {"device": "cpu"},
    {"device": other("cpu")},
    {"device": Name("cpu")},
    {"device": "cpu:0"},
    {"device": "cpu:00"},
    {"device": "CPU"},
    {"device": "cuda:0"},
    {"device": (1, 0)},
    {"device": dlx.Device("cpu")},
    {"device": torch.device("cpu")},
    {"device": 1},
    {"device": "cpu", "copy": False},
    {"copy": False, "device": "cpu"},
    {"copy": True, "device": None},
    {"device": "cpu", "copy": False, "stream": None},
    {"stream": None},
    {"stream": 3},
    {"release": "auto"},
    {"release": "never"},
    {"kopie": False},
    {"copy": False, "kopie": False},
]


def outcome(make: Callable[[], object], keywords: dict[str, object]) -> object:
    """What a call makes or raises, without addresses."""
    x = make()
    try:
        made = dlx.from_dlpack(x, **keywords)  # type: ignore[arg-type]
    except Exception as error:
        return type(error), str(error).replace(hex(id(x)), "")
    data = np.asarray(x).ctypes.data if isinstance(x, np.ndarray) else None
    shares = made is x or (data is not None and made.data_ptr == data)
    asked = x.asked if isinstance(x, Described) else None
    said = (made.shape, made.strides, made.dtype, made.device, made.readonly)
    return said, made.is_copied, shares, asked, made.device_aliases, made.tolist()


@pytest.mark.parametrize("keywords", KEYWORDS, ids=str)
@pytest.mark.parametrize("source", SOURCES)
def test_names_that_are_not_interned_lead_to_the_same(
    source: str, keywords: dict[str, object]
) -> None:
    """R57, R58: those are parsed, interned names are compared by address."""
    parsed = {other(name): value for name, value in keywords.items()}
    assert outcome(SOURCES[source], keywords) == outcome(SOURCES[source], parsed)


@pytest.mark.parametrize("source", ["ndarray", "torch", "torch view", "described"])
def test_copy_decides_whether_the_memory_is_shared(source: str) -> None:
    """R57, R58: with the device named, too."""
    x: Any = SOURCES[source]()
    address = dlx.from_dlpack(x).data_ptr
    for copy in (False, None, True):
        tensor = dlx.from_dlpack(x, copy=copy, device="cpu")
        assert (tensor.data_ptr == address) is (copy is not True)
        assert tensor.is_copied is (copy is True)


def test_a_keyword_is_not_taken_by_position() -> None:
    """R56: the options are keywords."""
    with pytest.raises(TypeError, match="positional"):
        dlx.from_dlpack(np.ones(3), "cpu")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["copy", "device"])
def test_a_name_that_comes_twice_is_an_error(name: str) -> None:
    """docs/safety.md, S20: Python code cannot pass it, but C code can."""
    call = ctypes.pythonapi.PyObject_Vectorcall
    call.restype = ctypes.py_object
    call.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_size_t]
    call.argtypes += [ctypes.py_object]
    array: Any = np.ones(3)
    nothing: Any = None
    values = (ctypes.py_object * 3)(array, nothing, nothing)
    with pytest.raises(TypeError, match=f"multiple values for argument '{name}'"):
        call(dlx.from_dlpack, values, 1, (name, name))


def test_a_torch_tensor_is_asked_for_aliases_where_a_device_is_named() -> None:
    """docs/devices.md: the attribute of an instance counts, too."""
    x = torch.ones(3)
    x.__dlpack_device_aliases__ = lambda: [(13, 0), (1, 0)]
    cuda_managed = (dlx.Device("cuda_managed:0"),)
    assert dlx.from_dlpack(x, device="cpu").device_aliases == cuda_managed
    assert dlx.from_dlpack(x, device="cpu", copy=False).device_aliases == cuda_managed
    assert dlx.from_dlpack(x, copy=False).device_aliases == ()
    assert dlx.from_dlpack(x, device="cpu", copy=True).device_aliases == ()


def test_what_the_aliases_of_a_torch_tensor_raise_passes() -> None:
    """docs/devices.md: a producer's exceptions pass unchanged."""
    x = torch.ones(3)

    def fails() -> None:
        raise KeyError("aliases")

    x.__dlpack_device_aliases__ = fails
    with pytest.raises(KeyError, match="aliases"):
        dlx.from_dlpack(x, device="cpu")
    assert dlx.from_dlpack(x, copy=False).shape == (3,)
