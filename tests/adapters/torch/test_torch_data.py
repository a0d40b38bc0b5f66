"""Elements, layouts and memory that dlx and torch share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import numpy as np
import pytest
from support.fake_producers import Producer
from support.optional_libraries import requires
from support.python_process import run_python

torch = requires("torch")

# dtypes

DTYPES = {
    "bool": "bool",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "bfloat16": "bfloat16",
    "complex32": "complex32",
    "complex64": "complex64",
    "complex128": "complex128",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2": "float8_e5m2",
    "float8_e5m2fnuz": "float8_e5m2fnuz",
    "float8_e8m0fnu": "float8_e8m0fnu",
    "float4_e2m1fn_x2": "float4_e2m1fnx2",
}
every_dtype = pytest.mark.parametrize(("dtype", "name"), DTYPES.items(), ids=DTYPES)


def bytes_as(dtype: str) -> Any:
    """Tensor of this dtype over 48 bytes, each 0 or 1."""
    raw = torch.arange(48, dtype=torch.uint8) % 2
    return raw.view(getattr(torch, dtype))


@every_dtype
def test_the_name_of_each_dtype_is_the_same(dtype: str, name: str) -> None:
    """R102 to R108: torch packs two fp4 into one element, in two lanes."""
    imported = dlx.from_dlpack(bytes_as(dtype))
    assert str(imported.dtype) == name
    assert imported.nbytes == 48


@every_dtype
def test_each_dtype_goes_there_and_back(dtype: str, name: str) -> None:
    """R102 to R108: same dtype, same shape, same memory."""
    tensor = bytes_as(dtype)
    back = torch.from_dlpack(dlx.from_dlpack(tensor))
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert back.data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("bfloat16", [1.5, -2.0, 0.0]),
        ("float8_e4m3fn", [1.5, -2.0, 448.0]),
        ("float8_e5m2", [1.5, -2.0, 57344.0]),
        ("float8_e4m3fnuz", [1.5, -2.0, 240.0]),
        ("float8_e5m2fnuz", [1.5, -2.0, 57344.0]),
        ("float8_e8m0fnu", [0.5, 2.0, 1024.0]),
    ],
)
def test_small_floats_have_the_values_that_torch_gave_them(
    dtype: str, values: list[float]
) -> None:
    """R106: read by ml_dtypes."""
    tensor = torch.tensor(values).to(getattr(torch, dtype))
    array = dlx.from_dlpack(tensor).numpy()
    assert array.astype(np.float32).tolist() == values


@pytest.mark.parametrize("dtype", ["bits8", "bits1x8", "bits16"])
def test_dtypes_that_dlpack_has_not_are_refused(dtype: str) -> None:
    """R60: in torch's words, without its trace."""
    tensor = torch.empty(2, dtype=getattr(torch, dtype))
    with pytest.raises(BufferError, match=r"not supported by dlpack$"):
        dlx.from_dlpack(tensor)


# Layouts

LAYOUTS: dict[str, Callable[[], Any]] = {
    "row-major": lambda: torch.arange(24.0).reshape(2, 3, 4),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).T,
    "sliced": lambda: torch.arange(24.0).reshape(4, 6)[1::2, 2:5],
    "channels last": lambda: torch.ones(2, 3, 4, 5).to(
        memory_format=torch.channels_last
    ),
    "expanded": lambda: torch.ones(3, 1).expand(3, 4),
    "one element": lambda: torch.ones(1, 1),
    "0-d": lambda: torch.tensor(2.5),
    "0-d of a slice": lambda: torch.arange(3.0)[2],
}
every_layout = pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)


@every_layout
def test_a_layout_is_read_as_it_is(make: Callable[[], Any]) -> None:
    """R89, R92, R95, R98: shape, strides and address as torch says."""
    tensor = make()
    imported = dlx.from_dlpack(tensor)
    assert imported.data_ptr == tensor.data_ptr()
    assert imported.shape == tuple(tensor.shape)
    assert imported.strides == tensor.stride()
    assert imported.is_contiguous is tensor.is_contiguous()


@every_layout
def test_torch_reads_a_layout_as_it_is(make: Callable[[], Any]) -> None:
    """R89, R128: there and back, through the table."""
    tensor = make()
    back = torch.from_dlpack(dlx.from_dlpack(tensor))
    assert (back.data_ptr(), back.shape) == (tensor.data_ptr(), tensor.shape)
    assert back.stride() == tensor.stride()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)], ids=str)
def test_empty_tensors_go_there_and_back(shape: tuple[int, ...]) -> None:
    """R93, R94: without an address."""
    imported = dlx.from_dlpack(torch.zeros(shape))
    assert (imported.shape, imported.data_ptr) == (shape, 0)
    assert torch.from_dlpack(imported).shape == shape


NEGATIVE = """
import numpy, torch, dlx
tensor = dlx.from_dlpack(numpy.arange(4.0)[::-1])
try:
    torch.from_dlpack({argument})
except (BufferError, RuntimeError) as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(
    "argument", ["tensor", "tensor.__dlpack__(max_version=(1, 3))"]
)
def test_negative_strides_into_torch_are_an_exception(argument: str) -> None:
    """R97: torch 2.13 aborted the process."""
    status, out, _ = run_python(NEGATIVE.format(argument=argument))
    assert (status, out) in [(0, "BufferError\n"), (0, "RuntimeError\n")]


# Memory


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.t_(),
        lambda tensor: tensor.resize_(1),
        lambda tensor: tensor.squeeze_().unsqueeze_(0),
        lambda tensor: tensor.as_strided_((2,), (2,)),
        lambda tensor: tensor.swapaxes_(0, 1),
    ],
    ids=["t_", "resize_", "unsqueeze_", "as_strided_", "swapaxes_"],
)
def test_the_shape_is_of_the_time_of_the_import(change: Callable[[Any], Any]) -> None:
    """R100: torch's own struct points into the live tensor."""
    tensor = torch.arange(6.0).reshape(2, 3)
    imported = dlx.from_dlpack(tensor)
    before = tuple(tensor.shape), tensor.stride()
    change(tensor)
    assert (tuple(tensor.shape), tensor.stride()) != before
    assert (imported.shape, imported.strides) == before
    assert imported.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_what_torch_writes_dlx_shows() -> None:
    """R49: the memory is shared."""
    tensor = torch.zeros(2, 3)
    imported = dlx.from_dlpack(tensor)
    tensor[1, 2] = 7
    assert imported.numpy().tolist() == [[0, 0, 0], [0, 0, 7]]


def test_what_dlx_is_written_torch_shows() -> None:
    """R49: the memory is shared."""
    tensor = torch.zeros(2, 3)
    dlx.from_dlpack(tensor).numpy()[1, 2] = 7
    assert tensor.tolist() == [[0, 0, 0], [0, 0, 7]]


def test_torch_writes_through_a_dlx_tensor() -> None:
    """R49: to an array of NumPy."""
    array = np.zeros((2, 3))
    torch.from_dlpack(dlx.from_dlpack(array))[1, 2] = 7
    assert array.tolist() == [[0, 0, 0], [0, 0, 7]]


def test_a_copy_is_isolated_from_torch() -> None:
    """R59, R37: torch does not set IS_COPIED itself."""
    tensor = torch.zeros(2)
    copied = dlx.from_dlpack(tensor, copy=True)
    tensor[0] = 7
    assert copied.is_copied
    assert copied.numpy().tolist() == [0, 0]


def test_torch_holds_what_it_imports() -> None:
    """R8, R15: the producer's deleter runs when torch lets go, once."""
    producer = Producer()
    tensor = torch.from_dlpack(dlx.from_dlpack(producer))
    view = tensor[1:]
    del tensor
    assert producer.deleted == 0
    assert view.tolist() == [[3, 4, 5]]
    del view
    assert producer.deleted == 1


def test_torch_takes_read_only_memory() -> None:
    """R41: it has no such notion, and ignores the flag."""
    array = np.arange(3.0)
    array.flags.writeable = False
    assert torch.from_dlpack(dlx.from_dlpack(array)).tolist() == [0, 1, 2]


def test_a_torch_without_a_table_is_guarded_too() -> None:
    """R125: older torch is read by `__dlpack__`, which exports negated views."""
    program = """
import torch, dlx
del torch.Tensor.__dlpack_c_exchange_api__
negated = torch._neg_view(torch.ones(2))
parameter = torch.nn.Parameter(negated, requires_grad=False)
assert parameter.is_neg()
for tensor in negated, parameter:
    try:
        dlx.from_dlpack(tensor)
    except BufferError as error:
        assert "resolve_neg" in str(error), error
    else:
        raise AssertionError(type(tensor))
"""
    assert run_python(program) == (0, "", "")


def test_a_copy_that_torch_made_elsewhere_says_so() -> None:
    """R37: torch copies as asked and sets no flag; dlx knows that it asked."""
    producer = Producer(device=(2, 0))

    class Elsewhere(torch.Tensor):  # type: ignore[misc, name-defined]
        def __dlpack_device__(self) -> tuple[int, int]:
            return producer.device

        def __dlpack__(self, **keywords: Any) -> Any:
            return producer.__dlpack__(**keywords)

    tensor = dlx.from_dlpack(torch.ones(2).as_subclass(Elsewhere), copy=True)
    assert producer.calls[-1][1]["copy"] is True
    assert tensor.is_copied
    del tensor
    assert producer.deleted == 1
