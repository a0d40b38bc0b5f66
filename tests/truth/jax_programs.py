"""Programs of JAX."""

from __future__ import annotations

from random import Random

from .first_tensor import draw_numbers
from .program import Library, one_of

# Few shapes, because JAX compiles for each.
SHAPES = ((3,), (2, 3), (), (0,), (2, 2))
DTYPES = (
    "float32 float64 int32 int64 bool uint8 complex64 complex128 float16 bfloat16 int8 "
    "uint16 float8_e4m3fn float8_e5m2 int4 uint4"
)

STEPS = (
    "x = x[0]",
    "x = x[1:]",
    "x = x[::-1]",
    "x = x[::2]",
    "x = x.T",
    "x = x.reshape(-1)",
    "x = x[None]",
    "x = x.conj()",
    "x = x.real",
    "x = x.imag",
    "x = x + x",
    "x = -x",
    "x = x.at[0].set(7)",
    "x = jnp.broadcast_to(x, (2, *x.shape))",
    "x = jnp.asarray(np.asarray(x))",
    "x = jnp.array(np.asarray(x))",
    "x = jax.device_put(x)",
    "x = jax.device_put(x, jax.devices()[0])",
    "x = jax.device_put(x, jax.devices()[-1])",
    "x = jax.device_put(x, jax.NamedSharding(jax.make_mesh((2,), 'a'), jax.P('a')))",
    "x = jax.device_put(x, jax.NamedSharding(jax.make_mesh((1,), 'a'), jax.P()))",
    "x = jax.jit(lambda t: t * 2)(jnp.ones((512, 512), x.dtype))",
    "x = jax.device_put(np.arange(6.))",
    "x = jax.device_put(frozen(np.arange(1, 17.)), may_alias=True)",
    "x = jnp.asarray(mapped(np.arange(1, 17.), 'r'))",
    "x = jnp.asarray(x, copy=False)",
    "x = x.astype(jnp.float32)",
    "x = jax.lax.bitcast_convert_type(x, jnp.int32)",
    "x = jax.numpy.from_dlpack(x)",
    "x = x.copy()",
    "x = copy.copy(x)",
    "x = copy.deepcopy(x)",
    "x = pickled(x)",
    "x = jax.jit(lambda t: t)(x)",
    "x = jax.jit(lambda t: t.T, donate_argnums=0)(x)",
    "y = jax.jit(lambda t: t + 1, donate_argnums=0)(x); x = y",
    "y = jax.jit(lambda t: t + 1, donate_argnums=0)(x)",
    "x = jax.vmap(lambda t: t * 2)(x)",
    "x = jax.grad(lambda t: (t * t).sum().real)(x)",
    "x.delete()",
    "x = jax.random.key(0)",
    "x = jax.random.PRNGKey(0)",
    "x = jnp.zeros_like(x)",
    "x = np.asarray(x)",
    "x = x.addressable_shards[0].data",
    "x = x.addressable_data(0)",
    "x = jax.ShapeDtypeStruct(x.shape, x.dtype)",
    "x = jax.new_ref(x)",
    "x = jax.new_ref(x)[...]",
)
FRAMES = (
    "jax.jit(lambda x: look(x, TEXT))(x)",
    "jax.vmap(lambda x: look(x, TEXT))(x)",
    "jax.grad(lambda x: look(x, TEXT).sum().real)(x)",
    "jax.eval_shape(lambda x: look(x, TEXT), x)",
    "with jax.enable_x64(False): look(x, TEXT)",
    "with jax.disable_jit(): look(x, TEXT)",
)


def start(r: Random) -> str:
    """Draw the first line."""
    numbers, dtype = draw_numbers(r, DTYPES, SHAPES)
    return f"x = jnp.asarray({numbers}.astype(jnp.{dtype}))"


step = one_of(STEPS)
LIBRARY = Library(start, step, FRAMES, ("jax",))
