"""`DType` and `Device` equal the objects of libraries that mean the same."""

from __future__ import annotations

from typing import Any

import dlx
import ml_dtypes
import numpy as np
import pytest
from support.optional_libraries import requires

NAMES = ["int8", "uint16", "float16", "float32", "float64", "complex64", "bool"]


@pytest.mark.parametrize("name", NAMES)
def test_a_dtype_equals_those_of_numpy(name: str) -> None:
    """The dtype and the scalar type, on either side."""
    dtype = dlx.DType(name)
    kinds = [np.dtype(name)] + ([np.dtype(name).type] if name != "bool" else [])
    for other in kinds:
        assert dtype == other
        assert other == dtype


def test_a_dtype_equals_those_of_ml_dtypes() -> None:
    """They are scalar types."""
    assert dlx.DType("bfloat16") == ml_dtypes.bfloat16
    assert dlx.DType("float8_e5m2") == np.dtype(ml_dtypes.float8_e5m2)


@pytest.mark.parametrize("name", NAMES)
def test_a_dtype_equals_that_of_torch(name: str) -> None:
    """And no other of torch's."""
    torch = requires("torch")
    assert dlx.DType(name) == getattr(torch, name)
    assert dlx.DType(name) != torch.bfloat16


class Named:
    """Prints like a dtype, and is none."""

    def __str__(self) -> str:
        """Its name."""
        return "float32"


@pytest.mark.parametrize(
    "other",
    [
        *(np.dtype(">f4"), np.dtype("S4"), np.float64, float, None, 2, (2, 32, 1)),
        pytest.param(Named(), id="named"),
    ],
    ids=repr,
)
def test_a_dtype_equals_nothing_else(other: Any) -> None:
    """Another byte order is another dtype; what only prints like one is none."""
    assert dlx.DType("float32") != other
    assert other != dlx.DType("float32")


def test_a_device_equals_those_of_torch() -> None:
    """With an index, but for the CPU, of which there is one."""
    torch = requires("torch")
    assert dlx.Device("cpu") == torch.device("cpu") == dlx.Device("cpu")
    assert dlx.Device("cuda:1") == torch.device("cuda", 1)
    assert dlx.Device("cuda:0") != torch.device("cuda", 1)
    assert dlx.Device("cuda:0") != torch.device("cuda")
    assert dlx.Device("cpu") != torch.device("meta")


def test_a_device_equals_those_of_jax() -> None:
    """All of its devices on the platform cpu are one."""
    jax = requires("jax")
    assert dlx.Device("cpu") == jax.devices("cpu")[0]
    assert dlx.Device("cuda:0") != jax.devices("cpu")[0]


def test_the_devices_of_libraries_are_taken() -> None:
    """R57: wherever a device may be named."""
    torch, jax = requires("torch"), requires("jax")
    for device in (torch.device("cpu"), jax.devices("cpu")[0]):
        assert dlx.Device(device) == "cpu"
        assert dlx.from_dlpack(np.zeros(3), device=device).device == "cpu"
        assert dlx.empty(3, "float32", device=device).device == "cpu"


@pytest.mark.parametrize("name", ["cuda", "meta", "mps"])
def test_a_device_that_is_not_one_is_refused(name: str) -> None:
    """torch's current device is another one each time; others DLPack lacks."""
    device = requires("torch").device(name)
    with pytest.raises(ValueError, match="names no single device that DLPack has"):
        dlx.Device(device)


@pytest.mark.parametrize("name", ["cpu", "cuda:1", "metal:0", "cuda_host:0"])
def test_a_device_type_equals_its_integer_and_no_name(name: str) -> None:
    """R67: what is equal hashes alike, and a name hashes otherwise than an integer."""
    device = dlx.Device(name)
    kind, number = device.type, int(device.type)
    assert kind == number
    assert hash(kind) == hash(number)
    assert {number: "found"}[kind] == "found"
    other: Any = name.partition(":")[0]
    assert kind != other
    assert kind.name != other


def test_the_name_of_a_device_type_makes_a_device() -> None:
    """What to compare in place of the type and a name."""
    for name in ("cpu", "cuda:1", "metal:0", "cuda_host:0"):
        device = dlx.Device(name)
        assert device == name
        kind = device.type.name.lower()
        assert name.startswith(kind)
        assert dlx.Device((kind, device.id)) == device
