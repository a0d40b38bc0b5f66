"""Programs of TensorFlow."""

from __future__ import annotations

from random import Random

from .first_tensor import draw_numbers
from .program import Library, one_of

DTYPES = (
    "float32 float64 int32 int64 bool uint8 complex64 complex128 float16 bfloat16 int8 "
    "uint16 uint32 uint64 int16"
)

STEPS = (
    "x = x[0]",
    "x = x[1:]",
    "x = x[::-1]",
    "x = x[::2]",
    "x = x[..., 0]",
    "x = tf.transpose(x)",
    "x = tf.reshape(x, (-1,))",
    "x = x[None]",
    "x = tf.math.conj(x)",
    "x = tf.math.real(x)",
    "x = tf.math.imag(x)",
    "x = x + x",
    "x = -x",
    "x = tf.broadcast_to(x, (2, *x.shape))",
    "x = tf.identity(x)",
    "x = tf.convert_to_tensor(x)",
    "x = tf.convert_to_tensor(np.arange(6.))",
    "x = tf.convert_to_tensor(frozen(np.arange(1, 17.)))",
    "x = tf.constant(1.0)",
    "x = tf.constant([1.0, 2.0])",
    "x = tf.cast(x, tf.float32)",
    "x = tf.cast(x, tf.float8_e4m3fn)",
    "x = tf.cast(x, tf.float8_e5m2)",
    "x = tf.cast(x, tf.int4)",
    "x = tf.bitcast(x, tf.uint8)",
    "x = tf.Variable(x)",
    "x = tf.Variable(x).value()",
    "x = tf.Variable(x).read_value()",
    "x = tf.strings.as_string(x)",
    "x = tf.constant('abc')",
    "x = tf.constant(['abc', 'd'])",
    "x = tf.constant([], tf.string)",
    "x = tf.io.serialize_tensor(x)",
    "x = tf.raw_ops.TensorListReserve(element_shape=(), num_elements=2, "
    "element_dtype=tf.float32)",
    "x = tf.raw_ops.EmptyTensorList(element_shape=(), max_num_elements=2, "
    "element_dtype=tf.float32)",
    "x = tf.Variable(x).handle",
    "x = tf.sparse.from_dense(x)",
    "x = tf.sparse.from_dense(x).values",
    "x = tf.RaggedTensor.from_row_lengths(tf.reshape(x, (-1,)), [tf.size(x)])",
    "x = tf.quantization.quantize(tf.cast(x, tf.float32), 0., 1., tf.qint8).output",
    "x = tf.function(lambda t: t + t)(x)",
    "x = tf.zeros_like(x)",
    "x = tf.experimental.numpy.asarray(x)",
    "x = tf.stop_gradient(x)",
    "x = x.numpy()",
    "x = copy.copy(x)",
    "x = copy.deepcopy(x)",
    "x = pickled(x)",
    "x = tf.experimental.dlpack.from_dlpack(tf.experimental.dlpack.to_dlpack(x))",
)
FRAMES = (
    "tf.function(lambda x: look(x, TEXT))(x)",
    "tf.vectorized_map(lambda x: look(x, TEXT), x)",
    "with tf.GradientTape() as tape: tape.watch(x); look(x, TEXT)",
    "with tf.device('cpu'): look(x, TEXT)",
)


def start(r: Random) -> str:
    """Draw the first line."""
    numbers, dtype = draw_numbers(r, DTYPES)
    return f"x = tf.constant({numbers}.astype(tf.{dtype}.as_numpy_dtype))"


step = one_of(STEPS)
LIBRARY = Library(start, step, FRAMES, ("tf",))
