"""Arrays of JAX, TensorFlow, Paddle, MLX and tinygrad."""

from __future__ import annotations

from typing import Any

from interop.cases import elements, ones_and_twos
from interop.making import in_mlx, in_paddle, late

from .objects import Objects, made, of_dtypes, sent, viewed


def deleted() -> Any:
    """Return a JAX array whose memory was given up."""
    array = late("jax.numpy").arange(3.0)
    array.delete()
    return array


def column_major() -> Any:
    """Return a JAX array whose first dimension is the innermost."""
    jax, layout = late("jax"), late("jax.experimental.layout")
    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.device_put(elements(), layout.Format(layout.Layout((1, 0)), where))


def jaxs() -> Objects:
    """Yield JAX's arrays, which all are immutable but the `Ref`."""
    jax, jnp = late("jax"), late("jax.numpy")
    yield from sent("jax")
    yield from of_dtypes("int2 uint2 int4 uint4", lambda name: jnp.zeros((4, 6), name))
    yield from viewed(jnp.asarray)
    yield from made(
        device_put=lambda: jax.device_put(elements()),
        from_numpy=lambda: jnp.from_dlpack(elements()),
        from_torch=lambda: jnp.from_dlpack(late("torch").from_numpy(elements())),
        column_major=column_major,
        key=lambda: jax.random.key(0),
        ref=lambda: jax.new_ref(jnp.arange(24.0)),
        deleted=deleted,
    )


def gradient() -> Any:
    """Return a Paddle tensor that records gradients."""
    x = in_paddle(elements())
    x.stop_gradient = False
    return x


def paddles() -> Objects:
    """Yield Paddle's tensors."""
    paddle = late("paddle")
    yield from sent("paddlepaddle")
    yield from of_dtypes("uint16", lambda name: paddle.zeros([4, 6]).astype(name))
    yield from viewed(in_paddle)
    yield from made(
        broadcast=lambda: paddle.expand(in_paddle(elements())[0], [4, 6]),
        as_strided=lambda: paddle.as_strided(in_paddle(elements()), [3, 2], [2, 3], 4),
        parameter=lambda: paddle.create_parameter([3], "float32"),
        grad=gradient,
    )


def tensorflows() -> Objects:
    """Yield TensorFlow's tensors; not of strings, whose export ends the process."""
    tf = late("tensorflow")
    yield from sent("tensorflow-cpu")
    yield from of_dtypes(
        "qint8 quint8 qint32",
        lambda name: tf.cast(tf.zeros((4, 6)), getattr(tf, name)),
    )
    yield from viewed(tf.constant)
    yield from made(
        variable=lambda: tf.Variable(elements()),
        ragged=lambda: tf.ragged.constant([[1.0, 2.0], [3.0]]),
        sparse=lambda: tf.sparse.from_dense(elements()),
        from_numpy=lambda: tf.convert_to_tensor(elements()),
    )


def mlxs() -> Objects:
    """Yield MLX's arrays, all immutable."""
    yield from sent("mlx")
    yield from viewed(in_mlx)


def tinygrads() -> Objects:
    """Yield tinygrad's tensors, and their buffers."""
    tensor = late("tinygrad").Tensor
    yield from sent("tinygrad")
    yield from made(tensor=lambda: tensor(ones_and_twos("float32")))
