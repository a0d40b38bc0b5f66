"""torch tensors without memory of the usual kind: one line says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dlx
import pytest
from support.optional_libraries import requires
from support.python_process import run_python

torch = requires("torch")


# Tensors without memory of the usual kind


class Wrapped(torch.Tensor):  # type: ignore[misc, name-defined]
    """A tensor without storage whose operations all give False."""

    @staticmethod
    def __new__(cls) -> Any:
        """Make one of two elements."""
        return torch.Tensor._make_wrapper_subclass(cls, (2,), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, *arguments: Any) -> bool:
        """Say no, to `is_pinned` for one."""
        return False


def fake_tensor() -> Any:
    """Tensor of `torch.compile`, which has a NULL pointer."""
    fake = requires("torch._subclasses.fake_tensor")
    with fake.FakeTensorMode():
        return torch.empty(2)


def without_storage() -> Any:
    """Tensor whose memory was given back, as FSDP does."""
    tensor = torch.ones(2)
    tensor.untyped_storage().resize_(0)
    return tensor


def nested(layout: Any) -> Any:
    """Tensor of two rows that differ in length."""
    rows = [torch.ones(2), torch.ones(3)]
    return torch.nested.nested_tensor(rows, layout=layout)


def inside(
    transform: Any, way: Callable[[Any], Any] = dlx.from_dlpack
) -> Callable[[], Any]:
    """Make an import inside a function that torch transforms."""

    def function(tensor: Any) -> Any:
        way(tensor + 1)
        return tensor.sum()

    return lambda: transform(function)(torch.ones(2, 2))


def of(make: Callable[[], Any]) -> Callable[[], Any]:
    """Make an import of what `make` makes."""
    return lambda: dlx.from_dlpack(make())


NO_MEMORY: dict[str, tuple[Callable[[], Any], str]] = {
    "sparse COO": (of(lambda: torch.eye(2).to_sparse()), "to_dense"),
    "sparse CSR": (of(lambda: torch.eye(2).to_sparse_csr()), "to_dense"),
    "sparse BSR": (of(lambda: torch.eye(4).to_sparse_bsr((2, 2))), "to_dense"),
    "MKL-DNN": (of(lambda: torch.ones(2).to_mkldnn()), "to_dense"),
    "quantized": (
        of(lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)),
        "dequantize",
    ),
    "meta": (of(lambda: torch.empty(2, device="meta")), "meta device"),
    "nested": (of(lambda: nested(torch.strided)), "to_padded_tensor"),
    "nested jagged": (of(lambda: nested(torch.jagged)), "to_padded_tensor"),
    "FakeTensor": (of(fake_tensor), "FakeTensor"),
    "zero tensor": (of(lambda: torch._efficientzerotensor(2)), "clone"),
    "freed": (of(without_storage), "NULL"),
    "wrapper subclass": (of(Wrapped), "NULL"),
    "vmap": (inside(torch.func.vmap), "a transform of torch.func"),
    "vmap, for a device": (
        inside(torch.func.vmap, lambda x: dlx.convert(x, torch.Tensor, device="cpu")),
        "a transform of torch.func",
    ),
    "grad": (inside(torch.func.grad), "a transform of torch.func"),
    "functionalize": (inside(torch.func.functionalize), "a transform of torch.func"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("run", "what"), NO_MEMORY.values(), ids=NO_MEMORY)
def test_a_tensor_without_memory_is_refused_in_one_line(
    run: Callable[[], Any], what: str
) -> None:
    """R111, R60: the message names what it is, never a trace of C++ functions."""
    with pytest.raises(BufferError, match=what) as caught:
        run()
    assert "\n" not in str(caught.value)


def test_lazy_copies_of_quantized_tensors_are_refused() -> None:
    """R60: torch ends many a process that asks whether one has a tangent."""
    program = """
        import dlx, torch

        values = torch.arange(1.0, 4.0)
        copied = torch.quantize_per_tensor(values, 0.5, 1, torch.qint8).clone()
        kept = [torch._lazy_clone(copied) for _ in range(100)]
        for lazy in kept:
            try:
                dlx.bridge(dlx.Tensor)(list)([lazy])
            except BufferError as error:
                assert "dequantize" in str(error)
            else:
                raise AssertionError("a tensor")
        """
    assert run_python(program)[0] == 0


def test_a_refusal_in_a_traced_function_leaves_the_trace() -> None:
    """R60: torch ends the process if one of its operators has raised meanwhile."""
    program = """
        import dlx, torch

        def function(x):
            try:
                dlx.from_dlpack(x)
            except BufferError:
                return x
            raise AssertionError("a tensor")

        torch.jit.trace(function, (torch.ones(2).to_sparse(),), check_trace=False)
        """
    assert run_python(program)[0] == 0


def test_functional_tensors_without_memory_are_refused() -> None:
    """R60: torch ends the process that asks whether one has a tangent."""
    program = """
        import dlx, torch

        x = torch.ones(())
        x.untyped_storage().resize_(0)
        x = torch._to_functional_tensor(x)
        try:
            dlx.from_dlpack(x)
        except BufferError:
            pass
        else:
            raise AssertionError("a tensor")
        """
    assert run_python(program)[0] == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["sparse COO", "quantized", "meta", "nested", "vmap"])
def test_what_torch_raised_is_the_cause(name: str) -> None:
    """R60: torch's own RuntimeError."""
    with pytest.raises(BufferError) as caught:
        NO_MEMORY[name][0]()
    assert type(caught.value.__cause__) is RuntimeError
