"""Graphs that are launched often, and what they have of dlx.

Private pools of torch, graphs of `torch.compile`, and bodies of conditional nodes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import dlx
import pytest

from gpu.captures import torch_graph
from gpu.compilers import need_triton
from gpu.conditional import Conditional
from gpu.machine import COUNT, NEW, OLD, Machine, one_value
from gpu.report import found

TURNS = 1000


def zeros(torch: ModuleType, count: int) -> list[Any]:
    """Return tensors of torch, which nothing uses."""
    made = [torch.zeros(COUNT, device="cuda:0") for _ in range(count)]
    torch.cuda.synchronize()
    return made


@pytest.mark.parametrize("is_given", [False, True], ids=["own pool", "given pool"])
def test_a_thousand_replays_compute_what_torch_computes(
    gpu: Machine, torch: ModuleType, is_given: bool
) -> None:
    """H4, H6: memory of a private pool is used on another stream and reused after."""
    keywords = {"pool": torch.cuda.graph_pool_handle()} if is_given else {}
    source, one, other = zeros(torch, 3)
    with torch_graph(torch, gpu.p, **keywords) as graph:
        made = source + 1.0
        place = made.data_ptr()
        tensor = dlx.from_dlpack(made)
        with tensor.use(stream=gpu.s) as view:
            gpu.copy(one.data_ptr(), view.data_ptr, gpu.s)
        del made, tensor, view
        again = source * 2.0
        found(f"a private pool hands out what dlx let go: {again.data_ptr() == place}")
        with dlx.borrow(again, out=other, stream=gpu.s) as (x, out, _):
            gpu.copy(out.data_ptr, x.data_ptr, gpu.s)
        del again, x, out
    bad = torch.zeros((), device="cuda:0", dtype=torch.int64)
    for turn in range(TURNS):
        source.fill_(float(turn))
        graph.replay()
        bad += (one != source + 1.0).any()
        bad += (other != source * 2.0).any()
    assert bad.item() == 0
    assert (one[0].item(), other[0].item()) == (TURNS, 2.0 * (TURNS - 1))


def test_a_graph_of_torch_compile_replays_an_operation_of_dlx(
    gpu: Machine, torch: ModuleType
) -> None:
    """H6: `mode="reduce-overhead"`; the operation is called while that captures."""
    need_triton()
    calls = list[bool]()

    def copied(x: Any) -> Any:
        calls.append(torch.cuda.is_current_stream_capturing())
        result = torch.empty_like(x)
        with dlx.borrow(x, out=result) as (a, b, stream):
            assert stream is not None
            gpu.copy(b.data_ptr, a.data_ptr, stream.handle)
        return result

    schema = "(Tensor x) -> Tensor"
    custom = torch.library.custom_op(
        "dlx_gpu::copied", copied, mutates_args=(), schema=schema
    )
    custom.register_fake(torch.empty_like)
    compiled = torch.compile(
        lambda x: custom(x + 1.0) * 2.0, mode="reduce-overhead", fullgraph=True
    )
    (source,) = zeros(torch, 1)
    bad = torch.zeros((), device="cuda:0", dtype=torch.int64)
    for turn in range(TURNS):
        source.fill_(float(turn))
        torch.compiler.cudagraph_mark_step_begin()
        bad += (compiled(source) != (source + 1.0) * 2.0).any()
    found(f"torch.compile calls the operation {len(calls)} times in {TURNS} turns")
    assert bad.item() == 0
    assert any(calls), "nothing was captured"
    assert len(calls) < TURNS // 10, "the graph was not replayed"


@pytest.mark.parametrize("other", [False, True], ids=["same stream", "other stream"])
def test_a_block_in_the_body_of_a_conditional_node_is_captured_or_refused(
    gpu: Machine, other: bool
) -> None:
    """H6: `cuStreamBeginCaptureToGraph`; in either case the capture ends well."""
    graph, (source, target, *_) = Conditional(gpu), gpu.memory
    gpu.fill(source, NEW, gpu.p)
    gpu.fill(target, OLD, gpu.p)
    gpu.synchronize()
    tensor = dlx.from_pointer(
        source, (COUNT,), "float32", device="cuda:0", stream=dlx.Stream(gpu.p)
    )
    said, expected = "captured", NEW
    with graph.captured(gpu.p):
        try:
            with dlx.borrow(tensor, stream=gpu.s if other else gpu.p) as (view, stream):
                assert stream is not None
                gpu.copy(target, view.data_ptr, stream.handle)
        except BufferError as error:
            said, expected = f"refused: {error}", OLD
    found(f"a block in a conditional body, on another stream ({other}): {said}")
    if said == "captured":
        graph.run(gpu.p)
    read = gpu.read(target, gpu.p)
    gpu.p.synchronize()
    assert one_value(read) == expected
    assert other or said == "captured"


def test_without_a_launch_the_body_of_a_conditional_node_does_nothing(
    gpu: Machine,
) -> None:
    """H6: the control; what was captured is not run."""
    graph, (source, target, *_) = Conditional(gpu), gpu.memory
    gpu.fill(source, NEW, gpu.p)
    gpu.fill(target, OLD, gpu.p)
    gpu.synchronize()
    with graph.captured(gpu.p):
        gpu.copy(target, source, gpu.p)
    before = gpu.read(target, gpu.p)
    gpu.p.synchronize()
    graph.run(gpu.p)
    after = gpu.read(target, gpu.p)
    gpu.p.synchronize()
    assert (one_value(before), one_value(after)) == (OLD, NEW)
