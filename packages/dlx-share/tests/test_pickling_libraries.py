"""`dlx_share.dumps`: tensors of other libraries inside any object."""

from __future__ import annotations

import io
import pickle
from typing import Any

import dlx
import ml_dtypes
import numpy as np
import pytest
from dlx_share.pickling import Pickler, dumps
from support.optional_libraries import requires
from support.python_process import run_python


def through(x: object) -> tuple[Any, list[pickle.PickleBuffer]]:
    """Return what arrives out of band, in this process, and the buffers."""
    buffers: list[pickle.PickleBuffer] = []
    text = dumps(x, buffer_callback=buffers.append)
    return pickle.loads(text, buffers=buffers), buffers


# torch.

TORCH = ["bool", "uint8", "int16", "uint32", "int64", "float16", "bfloat16", "float64"]
TORCH += ["complex32", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
TORCH += ["float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn_x2"]


@pytest.mark.parametrize("name", TORCH)
def test_a_tensor_of_torch_arrives_as_one_over_the_same_memory(name: str) -> None:
    """README.md, Pickling: any dtype, deep inside of an object."""
    torch = requires("torch")
    x = torch.zeros(3, 32, dtype=torch.uint8).view(getattr(torch, name))
    back, buffers = through({"layers": [(x, "text")]})
    y = back["layers"][0][0]
    assert type(y) is torch.Tensor
    assert (y.dtype, y.shape, y.data_ptr()) == (x.dtype, x.shape, x.data_ptr())
    assert len(buffers) == 1


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x.expand(3, 4, 6),
        lambda x: x.permute(1, 0)[None],
        lambda x: x.unfold(1, 3, 1),
    ],
)
def test_strides_of_torch_are_kept(view: Any) -> None:
    """README.md, Pickling: also those that repeat elements."""
    torch = requires("torch")
    x = view(torch.arange(24.0).reshape(4, 6))
    y, _ = through(x)
    assert y.stride() == x.stride()
    assert y.data_ptr() == x.data_ptr()
    assert torch.equal(x, y)


def test_torch_gets_a_copy_of_what_it_may_not_write_to() -> None:
    """README.md, Pickling: the bytes are copied, and strides are kept."""
    torch = requires("torch")
    x = torch.arange(6.0)[:, None].expand(6, 1000)
    buffers: list[pickle.PickleBuffer] = []
    text = dumps(x, buffer_callback=buffers.append)
    store = [bytes(buffer) for buffer in buffers]
    y = pickle.loads(text, buffers=store)
    y[0, 0] = 7
    assert store[0] == x[:, 0].numpy().tobytes()
    assert (y.stride(), y[0, 999].item()) == (x.stride(), 7)
    assert y.untyped_storage().nbytes() == 24


def test_a_view_of_torch_leaves_its_storage_behind() -> None:
    """README.md, Pickling: torch itself sends all of it."""
    torch = requires("torch")
    whole = torch.zeros(1000, 1000)
    assert len(dumps(whole[::2, 5])) < 2_200
    assert torch.equal(pickle.loads(dumps(whole[::2, 5])), whole[::2, 5])


@pytest.mark.parametrize("protocol", range(5))
def test_other_libraries_arrive_in_band_in_every_protocol(protocol: int) -> None:
    """README.md, Pickling: as `dlx.Tensor` does."""
    torch = requires("torch")
    x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t()
    y = pickle.loads(dumps(x, protocol))
    assert torch.equal(x, y)
    y[0, 0] = 7
    assert x[0, 0] == 0


def as_ever() -> dict[str, Any]:
    """Tensors of torch that are more than DLPack describes."""
    torch = requires("torch")
    attribute = torch.zeros(2)
    attribute.note = "mine"
    return {
        "gradient": torch.zeros(2, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.zeros(2)),
        "conjugate": torch.zeros(2, dtype=torch.complex64).conj(),
        "negative": torch.zeros(2, dtype=torch.complex64).conj().imag,
        "sparse": torch.eye(2).to_sparse(),
        "attribute": attribute,
        "meta": torch.zeros(2, device="meta"),
    }


@pytest.mark.parametrize(
    "name",
    [
        "gradient",
        "parameter",
        "conjugate",
        "negative",
        "sparse",
        "attribute",
        "meta",
    ],
)
def test_what_dlpack_cannot_describe_is_pickled_as_ever(name: str) -> None:
    """README.md, Pickling: exactly as torch does it."""
    x = as_ever()[name]
    y = pickle.loads(dumps(x))
    assert (type(y), y.requires_grad, y.layout) == (type(x), x.requires_grad, x.layout)
    assert (y.is_conj(), y.is_neg(), y.device) == (x.is_conj(), x.is_neg(), x.device)
    assert y.__dict__ == x.__dict__


def kinds_of_torch() -> dict[str, Any]:
    """More kinds of exactly `torch.Tensor` that are more than bytes."""
    torch = requires("torch")
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x)
        return x

    torch.func.vmap(keep)(torch.zeros(2, 3))
    nibbles = torch.zeros(4, dtype=torch.uint8).view(torch.int4)
    return {
        **{name: x for name, x in as_ever().items() if type(x) is torch.Tensor},
        "negative view": torch._neg_view(torch.ones(2)),
        "rows": torch.eye(2).to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "zeros without memory": torch._efficientzerotensor((2,)),
        "functional": torch._to_functional_tensor(torch.ones(2)),
        "batched": kept[0],
        "int4": nibbles,
    }


@pytest.mark.filterwarnings("ignore")  # Some of these kinds are beta, or deprecated.
def test_what_is_remembered_of_a_class_says_nothing_of_a_tensor() -> None:
    """docs/design.md, Between processes: each tensor is asked what it is."""
    torch = requires("torch")
    reduce = Pickler(io.BytesIO()).reducer_override
    for plain in torch.zeros(2), torch.zeros(2, dtype=torch.complex64):
        assert reduce(plain) is not NotImplemented
    for name, x in kinds_of_torch().items():
        assert type(x) is torch.Tensor
        assert reduce(x) is NotImplemented, name


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_library_arrives_the_second_time_as_the_first(protocol: int) -> None:
    """docs/design.md, Between processes: by what was found then, and as writable."""
    torch, jnp = requires("torch"), requires("jax.numpy")
    each = torch.ones(3), jnp.ones(3, "bfloat16"), np.ones(3, ml_dtypes.bfloat16)
    text = dumps(each, protocol)
    for _ in range(2):
        back = pickle.loads(text)
        assert [type(x) for x in back] == [type(x) for x in each]
        assert [str(x.dtype) for x in back] == [str(x.dtype) for x in each]
        back[0][0] = back[2][0] = 7
        assert [float(x.sum()) for x in back] == [9, 3, 9]


def test_the_parameters_of_a_model_go_out_of_band() -> None:
    """README.md, Pickling: what torch pickles as parts of others."""
    torch = requires("torch")
    model = torch.nn.Linear(3, 2)
    back, buffers = through(model)
    assert len(buffers) == 2
    for x, y in zip(model.parameters(), back.parameters(), strict=True):
        assert type(y) is torch.nn.Parameter
        assert (y.requires_grad, y.data_ptr()) == (True, x.data_ptr())


def test_a_subclass_of_torch_is_pickled_as_ever() -> None:
    """README.md, Pickling: exact classes only."""
    torch = requires("torch")
    x = torch.zeros(2).as_subclass(torch.nn.Buffer)
    assert b"dlx" not in dumps(x)


# JAX.

JAX = ["bool", "uint8", "int16", "float16", "bfloat16", "float32", "complex64"]
JAX += ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn"]
JAX += ["float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.mark.parametrize("name", JAX)
def test_an_array_of_jax_arrives_as_one_over_the_same_memory(name: str) -> None:
    """README.md, Pickling: any dtype, out of band."""
    jnp = requires("jax.numpy")
    x = jnp.ones((2, 3), dtype=name)
    y, _ = through(x)
    assert (type(y), y.dtype, y.shape) == (type(x), x.dtype, x.shape)
    assert y.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()


def test_jax_reads_a_read_only_store_in_place() -> None:
    """README.md, Pickling: it never writes to an array."""
    jnp = requires("jax.numpy")
    x = jnp.arange(32, dtype="float32")
    memory = np.zeros(192, "uint8")
    start = -memory.ctypes.data % 64
    buffers: list[pickle.PickleBuffer] = []
    text = dumps(x, buffer_callback=buffers.append)
    store = memory[start : start + 128]
    store[:] = buffers[0]
    store.flags.writeable = False
    y = pickle.loads(text, buffers=[store])
    assert y.unsafe_buffer_pointer() == store.ctypes.data
    assert (y == x).all()


@pytest.mark.parametrize("shape", [(), (0, 3), (1,)])
def test_an_array_of_jax_of_any_size_arrives(shape: tuple[int, ...]) -> None:
    """README.md, Pickling: empty, and without dimensions."""
    jnp = requires("jax.numpy")
    y = pickle.loads(dumps(jnp.ones(shape)))
    assert (y == jnp.ones(shape)).all()
    assert y.shape == shape


@pytest.mark.parametrize("name", ["int4", "uint2", "float4_e2m1fn"])
def test_what_jax_cannot_import_is_pickled_as_ever(name: str) -> None:
    """README.md, Pickling: what would be lost at the other end."""
    x = requires("jax.numpy").ones((2, 3), dtype=name)
    y = pickle.loads(dumps(x))
    assert (y.dtype, y.shape) == (x.dtype, x.shape)


def test_a_weak_type_of_jax_is_kept() -> None:
    """README.md, Pickling: as ever, because DLPack has no such type."""
    x = requires("jax.numpy").asarray(1.0)
    assert x.weak_type
    assert pickle.loads(dumps(x)).weak_type


def test_where_jax_is_missing_a_tensor_arrives() -> None:
    """README.md, Pickling: elements are not lost."""
    text = dumps(requires("jax.numpy").arange(3, dtype="bfloat16"))
    code = f"""
        import sys
        sys.modules["jax"] = None  # as if it were not there
        import pickle
        t = pickle.loads({text!r})
        print(t)
    """
    expected = "dlx.Tensor(bfloat16[3], cpu, readonly, [0.0, 1.0, 2.0])\n"
    assert run_python(code) == (0, expected, "")


# NumPy and MLX.


@pytest.mark.parametrize("name", ["bfloat16", "int4", "float8_e4m3fn", "float4_e2m1fn"])
def test_arrays_of_ml_dtypes_go_out_of_band(name: str) -> None:
    """README.md, Pickling: NumPy itself pickles these in band."""
    x = np.ones((2, 3), getattr(ml_dtypes, name)).T[::-1]
    y, buffers = through(x)
    assert (type(y), y.dtype, y.strides) == (np.ndarray, x.dtype, x.strides)
    assert y.ctypes.data == x.ctypes.data
    assert len(buffers) == 1


@pytest.mark.parametrize(
    "x",
    [np.ones(3), np.ones(3).view(np.recarray), np.array([None]), np.zeros(2, "M8[s]")],
)
def test_other_arrays_of_numpy_are_pickled_by_numpy(x: Any) -> None:
    """README.md, Pickling: NumPy's own pickles are as good."""
    assert dumps(x) == pickle.dumps(x, 5)


# The pickler.


def test_what_is_no_tensor_is_pickled_as_by_pickle() -> None:
    """README.md, Pickling: protocol 5 is the default."""
    x = [1, "a", {2: (3.0, None)}, np.arange(3), dlx.from_dlpack(np.arange(3)), dlx]
    for part in x[:-1]:
        assert dumps(part) == pickle.dumps(part, 5)
    with pytest.raises(TypeError, match="module"):
        dumps(x)


def test_the_arguments_are_those_of_pickle() -> None:
    """`help(dlx_share.Pickler)`."""
    for protocol in None, -1, 5:
        file = io.BytesIO()
        Pickler(file, protocol).dump(dlx.empty((2,), "int8"))
        assert file.getvalue()[:2] == b"\x80\x05"
    assert dumps(1, 0) == pickle.dumps(1, 0)
    with pytest.raises(ValueError, match="protocol >= 5"):
        dumps(1, 4, buffer_callback=print)


class Unnamed(type):
    """A metaclass that does not say what its classes are called."""

    @property
    def __name__(self) -> str:  # type: ignore[override]
        """Raise."""
        raise RuntimeError("no name")


class Quiet(metaclass=Unnamed):
    """What pickle asks for no `__name__`."""


def test_a_class_without_a_name_is_pickled_as_by_pickle() -> None:
    """docs/design.md, Between processes: `type` is asked, not the metaclass."""
    x = Quiet()
    assert dumps(x) == pickle.dumps(x, 5)
    assert type(pickle.loads(dumps(x))) is Quiet


def test_a_class_that_calls_itself_tensor_is_left_alone() -> None:
    """README.md, Pickling: exact classes, not their names."""
    requires("torch")
    fake = type("Tensor", (), {"__module__": "torch"})
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        dumps(fake())
    odd = type("Tensor", (), {"__module__": 5})
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        dumps(odd())
