"""Base classes that make a class a producer: by DLPack, by the array interfaces."""

from __future__ import annotations

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Self

    from numpy.typing import DTypeLike, NDArray
    from typing_extensions import CapsuleType

    from ._core import Device, DeviceType, DType, Tensor, _StreamLike

__all__ = ["ArrayInterfaceMixin", "ExchangeMixin"]


def _define_export(cls: type, exchange: str | None, mixin: str) -> None:
    """Give ``cls`` the ``__dlx_export__`` that ``exchange`` names, or require one."""
    if exchange is not None:
        exchange = _attribute_name(exchange, cls)
        if "__dlx_export__" in vars(cls):
            raise TypeError(
                f"{cls.__qualname__} has both exchange={exchange!r} and a "
                "__dlx_export__: one of them is accepted"
            )

        def __dlx_export__(self: object) -> object:
            return getattr(self, exchange)

        __dlx_export__.__qualname__ = f"{cls.__qualname__}.__dlx_export__"
        __dlx_export__.__doc__ = f"What is exported: the attribute ``{exchange}``."
        __dlx_export__.__dlx_attribute__ = exchange  # type: ignore[attr-defined]
        # Whatever a metaclass makes of assignments.
        type.__setattr__(cls, "__dlx_export__", __dlx_export__)
    elif not hasattr(cls, "__dlx_export__"):
        raise TypeError(
            f"{cls.__qualname__} does not say what it exports: name an attribute, "
            f'class {cls.__name__}(dlx.{mixin}, exchange="data"), '
            "or define a method, def __dlx_export__(self), "
            "that returns anything dlx.from_dlpack takes"
        )


def _attribute_name(name: object, cls: type) -> str:
    """Give the attribute that ``name`` is in the body of ``cls``."""
    import keyword

    if not isinstance(name, str):
        raise TypeError(f"exchange is the name of an attribute, not {name!r}")
    name = str.__str__(name)  # whatever a subclass says of itself
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(
            f"exchange is the name of an attribute: an identifier, not {name!r}"
        )
    if not name.isascii():
        from unicodedata import normalize

        name = normalize("NFKC", name)  # as Python does with names in source code
    owner = cls.__name__.lstrip("_")
    if name.startswith("__") and not name.endswith("__") and owner:
        return f"_{owner}{name}"
    return name


# Where this module runs again, it is the class that there is.
@_core.mixin
class ExchangeMixin:
    """Makes a class a producer and consumer of DLPack, with a C table of its own.

    ``class A(dlx.ExchangeMixin, exchange="data")`` exports the attribute ``data``;
    a class without ``exchange`` defines ``__dlx_export__(self)``. Either gives
    anything that `dlx.from_dlpack` takes: an array of any library, a `dlx.Tensor`,
    another such object. The attribute is looked up when something is exported; which of
    the two it is, is settled when the class is defined. A name that Python mangles in
    the body of the class (``__data``) is mangled here too; ``ValueError`` for what is
    no identifier.

    The mixin adds no storage: it goes with ``__slots__``, dataclasses, ``Generic``, and
    extension types as further bases. The class's table lives as long as the process;
    called after the class is gone, it raises (R114).
    """

    __slots__ = ()

    if TYPE_CHECKING:
        __dlpack_c_exchange_api__: ClassVar[CapsuleType]

        def __dlx_export__(self) -> object:
            """Give what is exported in place of this object."""

    def __init_subclass__(cls, *, exchange: str | None = None, **keywords: Any) -> None:
        """Settle what instances export, and give the class its table."""
        _define_export(cls, exchange, "ExchangeMixin")
        super().__init_subclass__(**keywords)
        if (warning := _core.register(cls)) is not None:
            import warnings

            warnings.warn(warning, RuntimeWarning, stacklevel=2)

    @classmethod
    def __dlx_import__(cls, tensor: Tensor) -> Self:
        """Build an instance over ``tensor``; the default calls ``cls(tensor)``."""
        return cls(tensor)  # type: ignore[call-arg]

    @classmethod
    def __dlx_empty__(
        cls, shape: tuple[int, ...], dtype: DType, device: Device
    ) -> object:
        """Allocate uninitialized memory for C code; the default is dlx's own."""
        return _core.allocate(shape, dtype, device)

    @classmethod
    def __dlx_stream__(cls, device: Device) -> int | None:
        """Name the stream that the class works on now, for devices that have streams.

        The default is the current stream of the library whose tensor was exported last.
        """
        return _core.current_work_stream(cls, device)

    @classmethod
    def from_dlpack(
        cls,
        x: object,
        /,
        *,
        device: Device | str | tuple[int | str, int] | None = None,
        copy: bool | None = None,
        stream: _StreamLike | None = None,
    ) -> Self:
        """Build an instance over the tensor of ``x``, as `dlx.from_dlpack` reads it."""
        tensor = _core.from_dlpack(x, device=device, copy=copy, stream=stream)
        return _core.import_tensor(cls, tensor)

    def __dlpack__(
        self,
        *,
        stream: _StreamLike | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """Export a capsule; see `dlx.Tensor.__dlpack__` for the arguments."""
        return _core.dlpack(
            self,
            stream=stream,
            max_version=max_version,
            dl_device=dl_device,
            copy=copy,
        )

    def __dlpack_device__(self) -> tuple[DeviceType, int]:
        """``(DeviceType, id)`` of what is exported (R64)."""
        return _core.dlpack_device(self)

    def __dlpack_device_aliases__(self) -> tuple[tuple[DeviceType, int], ...]:
        """Further pairs under which the inner object exports; a class may name its own.

        `dlx.from_dlpack` asks the inner object for the tensor there (``dl_device``).
        """
        return _core.dlpack_device_aliases(self)


class ArrayInterfaceMixin:
    """Makes a class readable through the array interfaces of NumPy and of CUDA.

    These are ``__array_interface__`` and ``__array__`` for memory on the CPU and
    ``__cuda_array_interface__`` on CUDA. The class says what it exports as with
    `ExchangeMixin`, and may take both. NumPy keeps the exported memory alive, not only
    the object.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __dlx_export__(self) -> object:
            """Give what is exported in place of this object."""

    def __init_subclass__(cls, *, exchange: str | None = None, **keywords: Any) -> None:
        """Settle what instances export."""
        _define_export(cls, exchange, "ArrayInterfaceMixin")
        super().__init_subclass__(**keywords)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface, version 3; its ``data`` owns the memory.

        Raises ``AttributeError`` for memory that is not on the CPU, ``BufferError`` for
        dtypes that it cannot name.
        """
        return _core.array_interface(_core.exported(self))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3 (R148 to R152).

        It has no place for an owner: this object must keep alive what it exports.
        Raises ``AttributeError`` for memory that is not on a CUDA device.
        """
        return _core.exported(self).__cuda_array_interface__

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        """Give a NumPy array over the memory, or a copy of another ``dtype``.

        Raises ``BufferError`` for memory that is not on the CPU, ``ValueError`` for
        ``copy=False`` with another ``dtype``.
        """
        array = _core.exported(self).numpy()
        if dtype is None and not copy:
            return array
        import numpy as np

        if copy:
            return np.array(array, dtype=dtype, copy=True)
        if copy is False and array.dtype != np.dtype(dtype):
            raise ValueError(f"copy=False, but {array.dtype} is not {np.dtype(dtype)}")
        return np.asarray(array, dtype=dtype)
