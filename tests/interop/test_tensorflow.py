"""TensorFlow ends the process where other libraries raise; dlx prevents it."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent, indent

from support.optional_libraries import needs

from .matrix import ENVIRONMENT

HEAD = """\
import sys, dlx, numpy as np, tensorflow as tf
from pytest import raises

def array(offset, dtype="f4", size=64):
    kind = np.dtype(dtype)
    memory = np.zeros(size * kind.itemsize + 512, "u1")
    start = -memory.ctypes.data % 256 + offset
    made = memory[start : start + size * kind.itemsize].view(kind)
    made[...] = np.arange(size) % 7
    return made
"""


def run(code: str) -> None:
    """Run code in a separate process."""
    needs("tensorflow")
    ran = subprocess.run(
        [sys.executable, "-c", HEAD + dedent(code)],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, f"{ran.returncode}: {ran.stderr[-2000:]}"


TENSORS = [
    ("string", 'tf.constant("a")'),
    ("string", 'tf.constant(["a", "b"])'),
    ("string", "tf.constant([], dtype=tf.string)"),
    ("variant", "tf.data.Dataset.range(3)._variant_tensor"),
    ("resource", "tf.Variable(1.0).handle"),
    ("qint32", "tf.bitcast(tf.constant([1, 2]), tf.qint32)"),
]
TAKES = [
    "dlx.from_dlpack(x)",
    "dlx.from_dlpack(x, copy=True)",
    "dlx.convert(x, np.ndarray)",
    "dlx.convert(x, np.ndarray, copy=False)",
    "dlx.from_dlpack(Holder(x))",
    "dlx.borrow(x).__enter__()",
]


def test_another_importer_is_asked_anew_for_a_dtype_that_the_former_kept() -> None:
    """What one keeps shows no other."""
    run("""
for _ in range(3):
    assert dlx.convert(array(0), tf.Tensor).dtype == tf.float32
own, other = tf.experimental.dlpack.from_dlpack, tf.constant([1, 2])
tf.experimental.dlpack.from_dlpack = lambda capsule: other
with raises(BufferError, match="would import float32 as int32"):
    dlx.convert(array(0), tf.Tensor)
tf.experimental.dlpack.from_dlpack = own
assert dlx.convert(array(0), tf.Tensor).dtype == tf.float32
""")


def test_a_tensor_that_claims_to_be_arrows_is_read_only() -> None:
    """S12: it is not asked whether it is Arrow's, by names that it lacks."""
    run("""
x = tf.constant([1.0, 2.0])
x.__arrow_c_array__ = None
for _ in range(100):
    assert " readonly" in repr(dlx.from_dlpack(x))
    assert not dlx.convert(x, np.ndarray).flags.writeable
""")


def test_elements_that_are_no_numbers_are_refused() -> None:
    """Also after many tensors of numbers, when dlx asks fewer questions."""
    tensors = ",\n".join(f'("{kind}", {make})' for kind, make in TENSORS)
    run(f"""
class Holder(dlx.ExchangeMixin, exchange="inner"):
    def __init__(self, inner):
        self.inner = inner

tensors = [
{tensors}
]
for _ in range(2):
    for kind, x in tensors:
        for take in {TAKES}:
            print(kind, take, file=sys.stderr, flush=True)
            with raises(BufferError, match=f"TensorFlow.*{{kind}}") as caught:
                eval(take)
            assert len(str(caught.value).splitlines()) == 1
    for number in range(100):
        dlx.from_dlpack(tf.constant(number))
""")


def test_elements_of_a_proxied_tensor_are_refused() -> None:
    """It claims a class that its type is not derived from."""
    run("""
import wrapt

class Claims:
    __class__ = property(lambda self: type(self.x))
    dtype = property(lambda self: self.x.dtype)
    def __init__(self, x):
        self.x = x
    def __dlpack__(self, **keywords):
        return self.x.__dlpack__(**keywords)
    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

for proxy in (wrapt.ObjectProxy, Claims):
    for take in (dlx.from_dlpack, lambda x: dlx.convert(x, np.ndarray)):
        for _ in range(100):
            take(proxy(tf.constant([1.0])))
        with raises(BufferError, match="TensorFlow.*string"):
            take(proxy(tf.constant("a")))
""")


OPERATIONS = [
    "x + x",
    "tf.reduce_sum(x)",
    "tf.square(x)",
    "tf.function(lambda y: y * 2)(x)",
    "tf.matmul(tf.reshape(x, (4, -1)), tf.reshape(x, (-1, 4)))",
]


def test_tensorflow_computes_with_memory_at_any_address() -> None:
    """TensorFlow ends the process below its own alignment, so it gets a copy."""
    operations = indent(",\n".join(f"lambda x: {each}" for each in OPERATIONS), "    ")
    run(f"""
operations = [
{operations}
]
for dtype in ("f4", "c16", "i4"):
    for offset in (0, 1, 2, 4, 8, 16, 32, 64):
        for take in (lambda x: x, dlx.from_dlpack):
            source = array(offset, dtype)
            before = source.copy()
            made = dlx.convert(take(source), tf.Tensor)
            truth = tf.constant(source)
            for operation in operations:
                np.testing.assert_array_equal(operation(made), operation(truth))
            np.testing.assert_array_equal(source, before)
""")


def test_tensorflow_shares_what_is_aligned_as_it_says() -> None:
    """R58: TensorFlow states its alignment in the compile flags for extensions."""
    run("""
[wanted] = [
    int(flag.partition("=")[2])
    for flag in tf.sysconfig.get_compile_flags()
    if "EIGEN_MAX_ALIGN_BYTES" in flag
]
source = array(wanted)
made = dlx.convert(source, tf.Tensor, copy=False)
assert dlx.from_dlpack(made).data_ptr == source.ctypes.data
with raises(dlx.CopyRefused, match="makes a copy"):
    dlx.convert(array(wanted // 2), tf.Tensor, copy=False)
with raises(dlx.CopyRefused, match="aligned to its elements"):
    dlx.convert(array(1), tf.Tensor, copy=False)
frozen = array(4)
frozen.flags.writeable = False
np.testing.assert_array_equal(dlx.convert(frozen, tf.Tensor) * 2, frozen * 2)
assert dlx.convert(array(4)[:0], tf.Tensor, copy=False).shape == (0,)
""")
