"""Device types and dtype codes of a DLPack after 1.3, by name and by number; and the
methods by which dtypes and devices say what they are."""

from __future__ import annotations

import copy
import pickle
from typing import Any, cast

import dlx
import numpy as np
import pytest
from support.optional_libraries import requires

DEVICES = {
    "tpu:0": (19, 0),
    "tpu_host:1": (20, 1),
    "ascend:2": (21, 2),
    "22:0": (22, 0),
    "40:3": (40, 3),
    "2147483647:0": (2**31 - 1, 0),
}
DTYPES = {
    "bcomplex32": (18, 32, 1),
    "bcomplex32x4": (18, 32, 4),
    "code19_6": (19, 6, 1),
    "code40_16x2": (40, 16, 2),
    "code255_255": (255, 255, 1),
}
every_device = pytest.mark.parametrize(("name", "pair"), DEVICES.items(), ids=DEVICES)
every_dtype = pytest.mark.parametrize(("name", "triple"), DTYPES.items(), ids=DTYPES)


@every_device
def test_a_later_device_has_a_name_that_leads_back(
    name: str, pair: tuple[int, int]
) -> None:
    """R31, R67: as those of DLPack 1.3."""
    device = dlx.Device(pair)
    assert (str(device), device.type, device.id) == (name, *pair)
    assert device == name == dlx.Device(name)
    assert hash(device) == hash(name)
    assert eval(repr(device), {"dlx": dlx}) == device
    assert pickle.loads(pickle.dumps(device)) == copy.copy(device) == device


@every_dtype
def test_a_later_dtype_has_a_name_that_leads_back(
    name: str, triple: tuple[int, int, int]
) -> None:
    """R31, R102: as those of DLPack 1.3."""
    dtype = dlx.DType(triple)
    assert (dtype.name, dtype.code, dtype.bits, dtype.lanes) == (name, *triple)
    assert dtype == name == dlx.DType(name)
    assert hash(dtype) == hash(name)
    assert eval(repr(dtype), {"dlx": dlx}) == dtype
    assert pickle.loads(pickle.dumps(dtype)) == copy.copy(dtype) == dtype
    assert dtype != dlx.DType("float32")


@pytest.mark.parametrize(
    "name", ["19:0", "5:0", "0:0", "040:0", "40:-1", "40:", "+40:0"]
)
def test_a_device_has_one_name_alone(name: str) -> None:
    """R31, R67: what has a name is not called by its number."""
    with pytest.raises(ValueError, match="is not a device"):
        dlx.Device(name)


@pytest.mark.parametrize(
    "name",
    [
        *["bcomplex", "bcomplex0", "bcomplex032", "bcomplex32x1", "bcomplex256"],
        *["code2_32", "code18_32", "code040_16", "code256_8", "code40_0", "code40_"],
    ],
)
def test_a_dtype_has_one_name_alone(name: str) -> None:
    """R31, R102: what has a name is not called by its number."""
    with pytest.raises(ValueError, match="is not a dtype"):
        dlx.DType(name)


@pytest.mark.parametrize("triple", [(18, 0, 1), (18, 32, 0), (40, 0, 0)])
def test_no_bits_or_lanes_are_refused(triple: tuple[int, int, int]) -> None:
    """R102: of any code."""
    with pytest.raises(ValueError, match=r"0 (bits|lanes)"):
        dlx.DType(triple)


def test_device_types_have_names_and_numbers() -> None:
    """R67: a number without a name is a member, too, as pickles need it."""
    kind = dlx.Device((40, 0)).type
    assert dlx.DeviceType.ASCEND.value == 21
    assert (kind.name, kind.value, int(kind)) == ("TYPE_40", 40, 40)
    assert isinstance(kind, dlx.DeviceType)
    assert pickle.loads(pickle.dumps(kind)) == kind == dlx.DeviceType(40)
    assert dlx.DeviceType(cast("int", np.int64(40))).name == "TYPE_40"
    wrongs: list[Any] = [0, 5, -1, 2**31, "x"]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="is not a valid DeviceType"):
            dlx.DeviceType(wrong)


# What objects say they are.


class Saying:
    """An object of which its class says what it is."""

    def __init__(self, answer: Any) -> None:
        """Keep the answer."""
        self.answer = answer


class SaysDType(Saying):
    """A dtype."""

    def __dlpack_data_type__(self) -> Any:
        """Return the answer."""
        return self.answer


class SaysDevice(Saying):
    """A device."""

    def __dlpack_device__(self) -> Any:
        """Return the answer."""
        return self.answer


@pytest.mark.parametrize("triple", [(2, 32, 1), (4, 16, 2), (18, 32, 1)])
def test_a_dtype_says_its_numbers_and_is_made_of_what_says_them(
    triple: tuple[int, int, int],
) -> None:
    """array-api#972: `__dlpack_data_type__`, both directions."""
    dtype = dlx.DType(SaysDType(triple))
    assert dtype.__dlpack_data_type__() == triple
    assert dlx.from_pointer(64, (1,), SaysDType(triple)).dtype == dtype


@pytest.mark.parametrize("pair", [(1, 0), (2, 3), (19, 0)])
def test_a_device_says_its_numbers_and_is_made_of_what_says_them(
    pair: tuple[int, int],
) -> None:
    """array-api#972: `__dlpack_device__`, both directions."""
    device = dlx.Device(SaysDevice(pair))
    assert device.__dlpack_device__() == pair
    assert device == SaysDevice(pair)


@pytest.mark.parametrize("answer", [None, 5, (2, 32), ("float", 32, 1), (2, 33, 1)])
def test_what_says_no_dtype_is_an_error(answer: Any) -> None:
    """R31, R102: a TypeError, or a ValueError for numbers that are no dtype."""
    with pytest.raises((TypeError, ValueError)):
        dlx.DType(SaysDType(answer))


@pytest.mark.parametrize("answer", [None, 5, (1,), ("cpu", 0), (5, 0), (2, -1)])
def test_what_says_no_device_is_an_error(answer: Any) -> None:
    """R31, R67: a TypeError, or a ValueError for numbers that are no device."""
    with pytest.raises((TypeError, ValueError)):
        dlx.Device(SaysDevice(answer))
    assert dlx.Device("cpu") != SaysDevice(answer)


def test_a_tensor_is_no_device_though_it_says_where_it_is() -> None:
    """array-api#972: what has `__dlpack__`, too, is a tensor."""
    x = np.arange(3)
    with pytest.raises(TypeError, match="device must be"):
        dlx.Device(x)
    assert dlx.Device("cpu") != dlx.from_dlpack(x)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8x4", "float4_e2m1fnx2"])
def test_tvm_ffi_takes_a_dtype(name: str) -> None:
    """array-api#972: tvm-ffi asks `__dlpack_data_type__`."""
    tvm_ffi = requires("tvm_ffi")
    echo = tvm_ffi.get_global_func("testing.echo")
    assert dlx.DType(tvm_ffi.dtype(dlx.DType(name))) == name
    assert str(echo(dlx.DType(name))) == str(tvm_ffi.dtype(name))


@pytest.mark.parametrize("name", ["cpu", "cuda:1"])
def test_tvm_ffi_takes_a_device_and_gives_one(name: str) -> None:
    """array-api#972: tvm-ffi asks `__dlpack_device__`, and its own have none."""
    tvm_ffi = requires("tvm_ffi")
    echo = tvm_ffi.get_global_func("testing.echo")
    assert dlx.Device(tvm_ffi.device(name)) == dlx.Device(name) == tvm_ffi.device(name)
    assert echo(dlx.Device(name)) == tvm_ffi.device(name)


def test_only_the_cpu_is_an_int() -> None:
    """R66: of others it would be a part; `tvm_ffi.device` takes a name or an int."""
    tvm_ffi = requires("tvm_ffi")
    assert tvm_ffi.device(dlx.Device("cpu")) == tvm_ffi.device("cpu")
    for name in "cuda:0", "cuda:1", "tpu:0":
        with pytest.raises(TypeError, match=r"pass str\(device\) or device.id"):
            int(dlx.Device(name))
    device = dlx.Device("cuda:1")
    assert tvm_ffi.device(str(device)) == tvm_ffi.device("cuda", device.id)


def test_torchs_packed_dtype_is_the_one_of_its_tensors() -> None:
    """R108: `float4_e2m1fn_x2` has two lanes."""
    torch = requires("torch")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no float4")
    dtype = dlx.DType(torch.float4_e2m1fn_x2)
    assert dtype == "float4_e2m1fnx2" == dtype.name
    assert dtype == torch.float4_e2m1fn_x2
