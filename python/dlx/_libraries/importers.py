"""Importers of other libraries: each makes an array of its own from a `dlx.Tensor`."""

from __future__ import annotations

import sys
from typing import NamedTuple

from .._core import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from .._core import Tensor

    Importer = Callable[[Tensor], Any]
    Lasts = Literal["always", "while named", "once"]


class Row(NamedTuple):
    """A class of a library, where it is found, and its importer."""

    module: str
    attribute: str
    importer: Importer | None = None
    """None for the ``from_dlpack`` of the module."""
    shows_memory: bool = False
    """Whether what the library exports is the memory of its arrays, never a copy."""
    keeps: str = ""
    """The module whose compiled ``from_dlpack`` keeps the struct that it is given."""


class Found(NamedTuple):
    """An importer, what is known of its results, and how long this holds."""

    function: Importer
    namespace: Any = None
    """What names the dtypes of the library."""
    shows_memory: bool = False
    keeps: bool = False
    """Whether it keeps the struct that it is given, so the dtype is not looked at."""
    lasts: Lasts = "once"
    """``"while named"``: as long as it is ``from_dlpack`` of the namespace."""


def _library(name: str) -> Any:
    # To import what is loaded takes longer than to look it up.
    loaded = sys.modules.get(name)
    return __import__(name) if loaded is None else loaded


def _numpy(tensor: Tensor) -> Any:
    return tensor.numpy()


class _Jax:
    """The function of JAX's extension that its importer ends in, once proven.

    `jax.dlpack.from_dlpack` first asks for platforms, streams and types, which takes
    several times as long. The function is used for CPU memory alone, as long as JAX has
    the importer that it was compared with.
    """

    public: Any = None
    """The importer of JAX that the function has been compared with."""
    function: Any = None
    backend: Any = None
    canonical: Any = None

    @classmethod
    def prove(cls, public: Any, tensor: Tensor) -> Any:
        """Import by both ways, and use the function from now on if they agree."""
        cls.public, cls.function = None, None
        made = public(tensor)
        if made.unsafe_buffer_pointer() != tensor.data_ptr:
            return made  # a copy, which shows nothing of the function
        cls.public = public
        try:
            from jax._src.lib import _jax  # type: ignore[import-not-found, unused-ignore]
            from jax._src.xla_bridge import (  # type: ignore[import-not-found, unused-ignore]
                get_backend,
            )
            from jax.dtypes import (  # type: ignore[import-not-found, unused-ignore]
                canonicalize_dtype,
            )

            cls.backend, cls.canonical = get_backend, canonicalize_dtype
            function = _jax.dlpack_managed_tensor_to_buffer
            again = cls.call(function, tensor)
            if _seen_of_jax(again) == _seen_of_jax(made):
                cls.function = function
        except Exception:  # another release: JAX's own importer remains
            return made
        return made

    @classmethod
    def call(cls, function: Any, tensor: Tensor) -> Any:
        """Import CPU memory by the function."""
        device = cls.backend("cpu").device_from_local_hardware_id(0)
        return function(tensor.__dlpack__(), device, None, None, 1)


def _seen_of_jax(made: Any) -> tuple[Any, ...]:
    """What two imports of one tensor have in common, if they are the same."""
    return (
        type(made),
        made.dtype,
        made.shape,
        made.sharding,
        made.committed,
        made.weak_type,
        made.unsafe_buffer_pointer(),
    )


def _jax(tensor: Tensor) -> Any:
    made = _import_to_jax(tensor)
    if made.unsafe_buffer_pointer() != tensor.data_ptr:
        made.block_until_ready()  # a copy, which JAX makes later
    return made


def _import_to_jax(tensor: Tensor) -> Any:
    from jax.dlpack import from_dlpack  # type: ignore[import-not-found, unused-ignore]

    if tensor.__dlpack_device__() != (1, 0):
        return from_dlpack(tensor)
    if _Jax.public is not from_dlpack:
        return _Jax.prove(from_dlpack, tensor)
    if (function := _Jax.function) is None:
        return from_dlpack(tensor)
    try:
        made = _Jax.call(function, tensor)
    except Exception:  # JAX's own importer says why, or can
        return from_dlpack(tensor)
    # Without x64 its own importer narrows what is wider than 4 bytes.
    if made.dtype.itemsize > 4 and _Jax.canonical(made.dtype) != made.dtype:
        return from_dlpack(tensor)
    return made


def _awkward(tensor: Tensor) -> Any:
    # It looks for the backend of a type that it does not know at each call.
    is_on_cpu = tensor.__dlpack_device__() == (1, 0)
    source = tensor.numpy() if is_on_cpu else tensor
    return _library("awkward").from_dlpack(source)


def _pyarrow(tensor: Tensor) -> Any:
    return _library("pyarrow").array(tensor.numpy())


def _pyarrow_fixed_shape(tensor: Tensor) -> Any:
    # pyarrow divides by the size, and needs a dimension: both end the process.
    if not (tensor.size and tensor.ndim):
        what = "element" if tensor.ndim else "dimension"
        raise BufferError(f"pyarrow.FixedShapeTensorArray has at least one {what}")
    if not _is_packed(tensor):  # it would take what is between them for elements
        raise BufferError("its elements are not beside each other")
    return _library("pyarrow.lib").FixedShapeTensorArray.from_dlpack(tensor)


def _is_packed(tensor: Tensor) -> bool:
    """Whether elements are beside each other, each once, in any order of dimensions."""
    step = 1
    for stride, extent in sorted(zip(tensor.strides, tensor.shape, strict=True)):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


def _onnxruntime(tensor: Tensor) -> Any:
    # Of a tensor it would ask for the dtype, by what that prints, to tell bools that
    # are exported as bytes; dlx exports them as bools.
    return _library("onnxruntime").OrtValue.from_dlpack(tensor.__dlpack__())


def _tensorflow(tensor: Tensor) -> Any:
    tf = _library("tensorflow")
    sysconfig = tf.sysconfig
    alignment = _alignments.get(sysconfig) or _alignment(sysconfig)
    # Its kernels crash on memory that is less aligned than its own.
    aligned = tensor.data_ptr % alignment == 0
    # It takes nothing but a capsule, and no newer one.
    capsule = tensor.__dlpack__() if aligned else tensor.__dlpack__(copy=True)
    try:
        return tf.experimental.dlpack.from_dlpack(capsule)
    except tf.errors.OpError as error:
        raise BufferError(error.message) from error


_alignments: dict[Any, int] = {}


def _alignment(sysconfig: Any) -> int:
    """TensorFlow's alignment in bytes, or else that of dlx's own memory."""
    alignment = 256
    for flag in sysconfig.get_compile_flags():
        name, _, value = flag.partition("=")
        if name == "-DEIGEN_MAX_ALIGN_BYTES":
            alignment = int(value)
    # How it was compiled does not change.
    _alignments[sysconfig] = alignment
    return alignment


def _warp(tensor: Tensor) -> Any:
    if tensor.ndim == 0:
        raise BufferError("an array of Warp has at least one dimension")
    return _library("warp").from_dlpack(tensor)


def _tinygrad(tensor: Tensor) -> Any:
    import tinygrad.tensor as tg  # type: ignore[import-not-found, import-untyped, unused-ignore]

    flat = tensor.numpy().reshape(-1)
    try:
        made = tg.Tensor(flat)
    except KeyError as error:
        raise BufferError(f"tinygrad has no dtype for {error}") from error
    # Realize now: lazily, it would copy only when it needs the elements, which may
    # have changed by then.
    return made.realize().reshape(tensor.shape)


# By the names that the classes have: those whose package has no ``from_dlpack``, or for
# which another importer is better.
_JAX = Row("jax", "Array", _jax)
_CLASSES: dict[str, tuple[Row, ...]] = {
    "ndarray": (Row("numpy", "ndarray", _numpy),),
    "jaxlib._jax.Array": (_JAX,),
    "Array": (
        _JAX,
        Row("pyarrow", "Array", _pyarrow),
        Row("awkward", "Array", _awkward),
        Row("array_api_strict", "_array_object.Array"),
    ),
    "array": (
        Row("mlx.core", "array", shows_memory=True),
        Row("warp", "array", _warp, shows_memory=True),
    ),
    "Tensor": (
        Row("tvm_ffi", "Tensor", shows_memory=True, keeps="tvm_ffi.core"),
        Row("tensorflow", "Tensor", _tensorflow, shows_memory=True),
        Row("tinygrad.tensor", "Tensor", _tinygrad),
    ),
}

# Classes with a ``from_dlpack``, in place of which another importer is used.
_BETTER = {
    "FixedShapeTensorArray": Row(
        "pyarrow", "FixedShapeTensorArray", _pyarrow_fixed_shape, shows_memory=True
    ),
    "OrtValue": Row("onnxruntime", "OrtValue", _onnxruntime, shows_memory=True),
}


def _is_exporter(cls: type) -> bool:
    if cls is getattr(sys.modules.get("jax"), "Array", None):
        return True  # the abstract base of what has the methods
    return hasattr(cls, "__dlpack__") and hasattr(cls, "__dlpack_device__")


def importer(cls: type) -> Importer | None:
    """Find the importer of ``cls``; None if the class itself has ``from_dlpack``.

    The importer does not keep ``cls`` alive.

    Raises ``TypeError`` for a class whose instances cannot be exported.
    """
    if not _is_exporter(cls):
        raise TypeError(
            f"{type_name(cls)} has no __dlpack__ and "
            "__dlpack_device__; expected a class with these or with an exchange table"
        )
    if callable(getattr(cls, "from_dlpack", None)):
        return None
    if (found := _of_package(cls)) is not None:
        return found.function
    name = type_name(cls)

    def refuse(tensor: Tensor) -> Any:
        raise BufferError(
            f"{name} cannot be made from a tensor: "
            "neither the class nor its package has from_dlpack"
        )

    return refuse


def _found(module: Any, attribute: str) -> Any:
    for name in attribute.split("."):
        module = getattr(module, name, None)
    return module


def _of_package(cls: type) -> Found | None:
    """Find the importer in the package of ``cls``.

    A class's ``__module__`` may be wrong, so callers check what the importer returns.
    """
    modules = sys.modules
    for base in cls.__mro__:
        for row in _CLASSES.get(base.__name__, ()):
            module = modules.get(row.module)
            if module is None or _found(module, row.attribute) is not base:
                continue
            lasts: Lasts = "while named" if row.importer is None else "always"
            shows_memory = row.shows_memory
            if base is not cls:  # one that a program derives may change, or die
                lasts, shows_memory = "once", False
            own = row.importer or module.from_dlpack
            # A Python function in its place may do anything.
            keeps = type(own).__name__ == "cython_function_or_method" and (
                own.__module__ == row.keeps
            )
            return Found(own, module, shows_memory, keeps, lasts)
    package: Any = getattr(cls, "__module__", None)
    while isinstance(package, str) and package:
        module = modules.get(package)
        loaded = getattr(module, "__dict__", {})
        # Asking for what a module lacks makes an exception, but a lazy one has to be.
        if "from_dlpack" in loaded or "__getattr__" in loaded or not loaded:
            found = getattr(module, "from_dlpack", None)
            if callable(found):
                return Found(found, module)
        package = package.rpartition(".")[0]
    return None


_IMMUTABLE_TYPE = 1 << 8
"""`Py_TPFLAGS_IMMUTABLETYPE`: nobody can give the class another importer."""


def importing(cls: type) -> Found:
    """Find the importer of ``cls``: its own, or that of its package.

    Raises ``TypeError`` for a class that has none.
    """
    own: Importer | None = getattr(cls, "from_dlpack", None)
    if callable(own):
        name, modules = cls.__name__, sys.modules
        if (row := _BETTER.get(name)) is not None and row.importer is not None:
            # What made an immutable class has named it; any other may say anything.
            is_of = str(cls.__module__).partition(".")[0] == row.module
            if (is_of and cls.__flags__ & _IMMUTABLE_TYPE) or (
                getattr(modules.get(row.module), name, None) is cls
            ):
                return Found(
                    row.importer, shows_memory=row.shows_memory, lasts="always"
                )
        if not cls.__flags__ & _IMMUTABLE_TYPE:
            return Found(own)
        shows = getattr(modules.get("pyarrow"), name, None) is cls
        return Found(own, shows_memory=shows, lasts="always")
    found = _of_package(cls)
    if found is None:
        raise TypeError(
            f"{type_name(cls)} cannot be made from a tensor: "
            "it has no exchange table, and neither it nor its package has from_dlpack; "
            "if its constructor takes a NumPy array, pass it dlx.convert(x, np.ndarray)"
        )
    return found
