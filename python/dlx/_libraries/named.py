"""What a name stands for: a namespace (``"jax.numpy"``), or an array type in one."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["named"]

_SHORT = {
    "Array": "jax.Array",
    "Tensor": "torch.Tensor",
    "cp": "cupy",
    "jnp": "jax.numpy",
    "mlx": "mlx.core",
    "ndarray": "numpy.ndarray",
    "np": "numpy",
    "pytorch": "torch",
    "tf": "tensorflow",
}
_LIBRARIES = (
    *("array_api_strict", "cupy", "dlx", "jax", "jax.numpy", "mlx.core", "numpy"),
    *("onnxruntime", "paddle", "pyarrow", "tensorflow", "torch", "tvm_ffi", "warp"),
)


def named(name: str) -> Any:
    """Return the module, or the class of a module, that has this name.

    Raises ``ModuleNotFoundError``, with a note that names a library which may be meant.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing, (module, _, attribute) = error.name or name, name.rpartition(".")
        if missing == name and module:
            found = getattr(named(module), attribute, None)
            if isinstance(found, type):
                return found
            error.add_note(f"did you mean {module!r}?")
        elif f"{name}.".startswith(f"{missing}.") and (meant := _meant(missing)):
            error.add_note(f"did you mean {meant + name[len(missing) :]!r}?")
        raise


def _meant(name: str) -> str | None:
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), _LIBRARIES, 1)
    return _SHORT.get(name) or next((each for each in close if each != name), None)
