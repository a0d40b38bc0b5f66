"""Paddle's table exports what its `__dlpack__` refuses."""

from __future__ import annotations

import subprocess
import sys

from support.optional_libraries import needs

PROGRAM = """
import warnings
warnings.simplefilter("ignore")
import paddle, dlx, numpy as np

def refused(call):
    try:
        call()
    except BufferError as error:
        assert "detach()" in str(error), error
    else:
        raise SystemExit(f"{call} is not refused")

class Holder(dlx.ExchangeMixin, exchange="data"):
    def __init__(self, data):
        self.data = data

leaf = paddle.to_tensor([1.0, 2.0])
leaf.stop_gradient = False
parameter = paddle.nn.Linear(2, 2).weight
for x in (leaf, leaf * 2, parameter):
    before = paddle.ones([2])
    for _ in range(100):
        dlx.from_dlpack(before)
    refused(lambda: dlx.from_dlpack(x))
    refused(lambda: dlx.convert(x, np.ndarray))
    refused(lambda: dlx.convert_tree([x], np.ndarray))
    refused(lambda: dlx.from_dlpack(Holder(x)))
    refused(lambda: Holder(x).__dlpack__(max_version=(1, 3)))
    detached = x.detach()
    assert (dlx.convert(detached, np.ndarray) == x.numpy()).all()
    assert dlx.from_dlpack(detached).data_ptr == x.data_ptr()
    with dlx.borrow(x) as (view, *_):
        assert view.shape == tuple(x.shape)
with paddle.no_grad():
    assert (dlx.convert(leaf * 2, np.ndarray) == [2, 4]).all()
"""


SPARSE = """
import warnings
warnings.simplefilter("ignore")
import paddle, dlx, numpy as np

class Holder(dlx.ExchangeMixin, exchange="data"):
    def __init__(self, data):
        self.data = data

layer = paddle.nn.Embedding(10, 3, sparse=True)
layer(paddle.to_tensor([1, 2])).sum().backward()
rows = layer.weight._grad_ivar()
sparse = paddle.sparse.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 2])
for x in (sparse, sparse.to_sparse_csr(), rows):
    for call in (
        dlx.from_dlpack,
        lambda x: dlx.convert(x, np.ndarray),
        lambda x: dlx.borrow(x).__enter__(),
        lambda x: dlx.from_dlpack(Holder(x)),
    ):
        try:
            call(x)
        except BufferError:
            pass
        else:
            raise SystemExit(f"{call} of {x} is not refused")
assert dlx.convert(sparse.to_dense(), np.ndarray).tolist() == [[0, 1], [2, 0]]
"""


def test_a_tensor_that_is_not_dense_is_refused() -> None:
    """R125: the table would export it as dense; the advice leads to a dense tensor."""
    needs("paddle")
    subprocess.run([sys.executable, "-c", SPARSE], check=True)


def test_a_tensor_that_records_gradients_is_refused_and_detached_it_is_right() -> None:
    """R125 for Paddle: refused, and the advice of the error works."""
    needs("paddle")
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


WRITTEN = """
import warnings
warnings.simplefilter("ignore")
import paddle, dlx, numpy as np

class Holder(dlx.ExchangeMixin, exchange="data"):
    def __init__(self, data):
        self.data = data

class Forward:
    def __init__(self, data):
        self.data = data
    def __dlpack__(self, **keywords):
        return self.data.__dlpack__(**keywords)
    def __dlpack_device__(self):
        return self.data.__dlpack_device__()

def gradient(write):
    x = paddle.ones([3])
    x.stop_gradient = False
    y = x * 2
    w = y * y
    write(y.detach())
    try:
        w.sum().backward()
    except RuntimeError:
        return "refused"
    return x.grad.numpy().tolist()

def borrow(z):
    with dlx.borrow(out=z) as (o, _):
        np.from_dlpack(o)[:] = 5

def launch(z):
    dlx.launcher(lambda o: np.from_dlpack(o).fill(5), give="tensor", out=0)(z)

@dlx.bridge(np.ndarray)
def fill(out):
    out[...] = 5

assert gradient(lambda z: None) == [8, 8, 8]
overs = (
    lambda z: z, Holder, dlx.from_dlpack, lambda z: dlx.from_dlpack(z)[1:], Forward,
    lambda z: dlx.from_dlpack(Forward(z)), lambda z: Holder(dlx.from_dlpack(z)),
    lambda z: dlx.from_dlpack(z.__dlpack__(max_version=(1, 3))),
)
for number, over in enumerate(overs):
    for write in (borrow, launch, lambda z: fill(out=z)):
        found = gradient(lambda z: write(over(z)))
        assert found == "refused", (number, found)
x = paddle.ones([3])
with dlx.borrow(x):
    pass
assert x.inplace_version == 0
"""


def test_paddle_learns_what_was_written() -> None:
    """docs/launcher.md, `out`: its backward pass refuses what was overwritten."""
    needs("paddle")
    subprocess.run([sys.executable, "-c", WRITTEN], check=True)


DISTRIBUTED = """
import warnings
warnings.simplefilter("ignore")
import paddle, dlx, numpy as np
import paddle.distributed as dist

class Holder(dlx.ExchangeMixin, exchange="data"):
    def __init__(self, data):
        self.data = data

mesh = dist.ProcessMesh([0], dim_names=["x"])
x = dist.shard_tensor(paddle.to_tensor([1.0, 2.0]), mesh, [dist.Replicate()])
x.stop_gradient = True
assert x.is_dist()
for call in (
    dlx.from_dlpack,
    lambda x: dlx.from_dlpack(x, copy=True),
    lambda x: dlx.convert(x, np.ndarray),
    lambda x: dlx.convert_tree([x], np.ndarray),
    lambda x: dlx.borrow(x).__enter__(),
    lambda x: dlx.launcher(lambda a: 0, give="tensor")(x),
    lambda x: dlx.bridge(np.ndarray)(lambda a: a)(x),
    lambda x: dlx.from_dlpack(Holder(x)),
):
    try:
        call(x)
    except BufferError as error:
        assert "tensor._local_value()" in str(error), error
    else:
        raise SystemExit(f"{call} is not refused")
assert dlx.convert(x._local_value(), np.ndarray).tolist() == [1, 2]
assert dlx.convert(dist.unshard_dtensor(x), np.ndarray).tolist() == [1, 2]
"""


def test_a_distributed_tensor_is_refused_with_the_calls_that_help() -> None:
    """R60: one for the part of this process, one for all of it."""
    needs("paddle")
    subprocess.run([sys.executable, "-c", DISTRIBUTED], check=True)


RECORDED = """
import warnings
warnings.simplefilter("ignore")
import paddle, dlx, numpy as np

def borrow(z):
    with dlx.borrow(out=z) as (o, _):
        np.from_dlpack(o)[:] = 5

def launch(z):
    dlx.launcher(lambda o: np.from_dlpack(o).fill(5), give="tensor", out=0)(z)

for write in (borrow, launch):
    x = paddle.ones([3])
    x.stop_gradient = False
    y = x * 2
    for each in (x, y):
        try:
            write(each)
        except BufferError as error:
            assert "paddle.no_grad()" in str(error), error
        else:
            raise SystemExit("a tensor that records gradients was written to")
    with paddle.no_grad():
        write(y)
    write(x.detach())
    assert x.tolist() == y.tolist() == [5, 5, 5]

import sys, types
sys.modules["paddle"] = types.SimpleNamespace(is_grad_enabled=lambda: False)
for write in (borrow, launch):
    try:
        write(x)
    except BufferError:
        continue
    raise SystemExit("a module of paddle's name was believed")
"""


def test_what_paddle_records_is_not_written() -> None:
    """A kernel records nothing: the gradients would be those of other elements."""
    needs("paddle")
    subprocess.run([sys.executable, "-c", RECORDED], check=True)


REMOVED = """
import warnings
warnings.simplefilter("ignore")
import paddle, dlx, sys
a = paddle.ones([3])
lent = dlx.from_dlpack(a)
before = a.inplace_version
del sys.modules["paddle"]
with dlx.borrow(out=lent):
    pass
assert a.inplace_version == before + 1, a.inplace_version
"""


def test_a_write_is_counted_whatever_the_modules_say() -> None:
    """R43: Paddle raises in a backward pass that has saved the tensor."""
    needs("paddle")
    ran = subprocess.run(
        [sys.executable, "-c", REMOVED], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
