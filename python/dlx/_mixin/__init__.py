"""Base classes that make a class a producer, by DLPack or the array interfaces."""

from __future__ import annotations

from .. import _core
from .definition import define_export
from .pickled import check_pickle, define_pickle, reduce_ex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Self

    from numpy.typing import DTypeLike, NDArray
    from typing_extensions import CapsuleType

    from .._core import Device, DType, Tensor, _StreamLike
    from .._device_type import DeviceType

__all__ = ["ArrayInterfaceMixin", "ExchangeMixin"]


def _define_protocol(cls: type) -> None:
    """Let the protocol export what the table does, also behind a base that has one."""
    names = "__dlpack__", "__dlpack_device__"
    for name in names:
        own = vars(ExchangeMixin)[name]
        if vars(cls).get(name, own) is not own:
            raise TypeError(
                f"{cls.__qualname__} defines {name}, which nothing that reads its "
                "exchange table calls; define __dlx_export__, or leave the mixin out"
            )
        owner = next(base for base in cls.__mro__ if name in vars(base))
        # A base that has but one of them passes the call on.
        has = {each for base in owner.__mro__ for each in names if each in vars(base)}
        if not issubclass(owner, ExchangeMixin) and len(has) == len(names):
            type.__setattr__(cls, name, own)


def _array_base(cls: type) -> str | None:
    """Return the name of the array class of another library that ``cls`` is, if any."""
    others = (base for base in cls.__mro__ if not issubclass(base, ExchangeMixin))
    names = (_core.type_name(base) for base in others if "__dlpack__" in vars(base))
    return next(names, None)


# If this module runs again, this returns the existing class.
@_core.mixin
class ExchangeMixin:
    """Makes a class a producer and consumer of DLPack, with its own exchange table.

    ``class A(dlx.ExchangeMixin, exchange="data")`` exports the attribute ``data``;
    a class without ``exchange`` defines ``__dlx_export__(self)``. Both return anything
    that `dlx.from_dlpack` accepts: an array of any library, a `dlx.Tensor`, an instance
    of another such class. Which of the two applies is fixed when the class is defined;
    the attribute is read at each export. A private name (``__data``) is mangled as in
    the body of the class; ``ValueError`` for a name that is not an identifier. A class
    that defines ``__dlpack__`` or ``__dlpack_device__`` itself is a ``TypeError``.

    With ``pickle=True``, a pickle of an instance holds the tensor without a copy, as
    for `dlx.Tensor`, and with ``exchange`` the other attributes. ``__dlx_import__``
    makes the instance at the other end, which then gets these. An instance with
    ``__dlx_export__`` and more attributes is a ``TypeError``, and so is one of a class
    that needs more than a tensor to be made; a subclass may define ``__reduce_ex__``.
    A class with other hooks of ``pickle`` is refused. Copies have all attributes in
    either case.

    The mixin adds no storage, so it combines with ``__slots__``, dataclasses,
    ``Generic``, and extension types as further bases. The table of the class lives as
    long as the process; once the class is gone, its functions raise.

        >>> import numpy as np
        >>> class Image(dlx.ExchangeMixin, exchange="pixels"):
        ...     def __init__(self, pixels):
        ...         self.pixels = pixels
        >>> np.from_dlpack(Image(np.ones(2)))
        array([1., 1.])
    """

    __slots__ = ()

    if TYPE_CHECKING:
        __dlpack_c_exchange_api__: ClassVar[CapsuleType]

        def __dlx_export__(self) -> object:
            """Return the object that is exported in place of this one."""

    def __init_subclass__(
        cls, *, exchange: str | None = None, pickle: bool = False, **keywords: Any
    ) -> None:
        """Determine what instances export, and give the class its table."""
        define_export(cls, exchange, "ExchangeMixin", keywords)
        _define_protocol(cls)
        if pickle:
            define_pickle(cls)
        if cls.__reduce_ex__ is reduce_ex:
            check_pickle(cls)
        super().__init_subclass__(**keywords)
        if (warning := _core.register(cls)) is not None:
            import warnings

            warnings.warn(warning, RuntimeWarning, stacklevel=2)

    @classmethod
    def __dlx_import__(cls, tensor: Tensor) -> Self:
        """Build an instance over ``tensor``; the default calls ``cls(tensor)``."""
        of_c = cls.__new__ is not object.__new__ and not hasattr(
            cls.__new__, "__code__"
        )
        if of_c and (base := _array_base(cls)):
            raise TypeError(
                f"{cls.__qualname__} is a {base}, which may take a tensor for a shape "
                "or a list; define a class method, def __dlx_import__(cls, tensor)"
            )
        try:
            return cls(tensor)  # type: ignore[call-arg]
        except TypeError as error:
            # Without a frame of the constructor, the call failed on its arguments.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            like = "def __dlx_like__(self, tensor), which has an instance to go by"
            if cls.__dlx_like__ is not ExchangeMixin.__dlx_like__:
                like = "pass an instance, by whose __dlx_like__ it is made"
            raise TypeError(
                f"{cls.__qualname__} cannot be made from a tensor alone ({error}); "
                f"define a class method, def __dlx_import__(cls, tensor), or {like}"
            ) from error

    def __dlx_like__(self, tensor: Tensor) -> Self:
        """Build an instance like this one over ``tensor``, of any shape and dtype.

        The default calls ``__dlx_import__``, which knows nothing of this instance.
        """
        return self.__dlx_import__(tensor)

    @classmethod
    def __dlx_empty__(
        cls, shape: tuple[int, ...], dtype: DType, device: Device
    ) -> object:
        """Allocate uninitialized memory for C code; by default, dlx allocates."""
        return _core.allocate(shape, dtype, device)

    @classmethod
    def __dlx_stream__(cls, device: Device) -> int | None:
        """Return the handle of the class's current stream, for devices with streams.

        Defaults to the current stream of the library whose tensor was exported last.
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
        """``(DeviceType, id)`` of the exported object.

        Source: array API ``__dlpack_device__``.
        """
        return _core.dlpack_device(self)

    def __dlpack_device_aliases__(self) -> tuple[tuple[DeviceType, int], ...]:
        """Device aliases of the exported object; a class may declare its own.

        `dlx.from_dlpack` requests such a device from that object (``dl_device``).
        """
        return _core.dlpack_device_aliases(self)


def notice(cls: type) -> None:
    """Warn, once, that the definition of ``cls`` did not reach `ExchangeMixin`.

    Raises ``TypeError`` if ``cls`` has inherited nothing to export. A class that got
    the mixin as a base later is all right.
    """
    bases = cls.__mro__[1 : cls.__mro__.index(ExchangeMixin)]
    owners = [
        base.__qualname__
        for base in bases
        if "__init_subclass__" in vars(base)
        # These two pass the call on.
        and base is not ArrayInterfaceMixin
        and getattr(base, "__module__", "") != "typing"
    ]
    if owners:
        reason = (
            f"the definition of {cls.__qualname__} did not reach dlx, so it has no "
            "exchange table of its own, and exchange= has no effect: add "
            f"super().__init_subclass__(**keywords) to {' or '.join(owners)}"
            ".__init_subclass__"
        )
        if not hasattr(cls, "__dlx_export__"):
            raise TypeError(reason)
        import warnings

        warnings.warn(reason, RuntimeWarning, stacklevel=2)
    # With this entry the class is like one that shares the table of its base.
    name = "__dlpack_c_exchange_api__"
    type.__setattr__(cls, name, getattr(cls, name))


class ArrayInterfaceMixin:
    """Makes a class readable through the array interfaces of NumPy and CUDA.

    These are ``__array_interface__`` and ``__array__`` for memory on the CPU, and
    ``__cuda_array_interface__`` for CUDA. The class defines what it exports as for
    `ExchangeMixin`, and may use both mixins. NumPy arrays keep the exported memory
    alive, not just the object.

        >>> import numpy as np
        >>> class Image(dlx.ArrayInterfaceMixin, exchange="pixels"):
        ...     pixels = bytearray(b"ab")
        >>> np.asarray(Image())
        array([97, 98], dtype=uint8)
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __dlx_export__(self) -> object:
            """Return the object that is exported in place of this one."""

    def __init_subclass__(cls, *, exchange: str | None = None, **keywords: Any) -> None:
        """Determine what instances export."""
        define_export(cls, exchange, "ArrayInterfaceMixin", keywords)
        super().__init_subclass__(**keywords)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface, version 3; its ``data`` owns the memory.

        Raises ``AttributeError`` for memory that is not on the CPU, and for dtypes that
        the interface cannot name: NumPy then calls ``__array__``.
        """
        t = _core.exported(self)
        found = _core.array_interface(t)
        # Without them, Pillow takes the object for a buffer; else it calls tobytes.
        found["strides"] = tuple(step * t.dtype.itemsize for step in t.strides)
        return found

    def tobytes(self) -> bytes:
        """Return the bytes of the elements, in row-major order."""
        return _core.exported(self).tobytes()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3.

        The interface has no owner: this object must keep alive what it exports.
        Raises ``AttributeError`` for memory that is not on a CUDA device.

        Source: CUDA Array Interface 3.
        """
        return _core.exported(self).__cuda_array_interface__

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        """Return a NumPy array over the memory, or a copy with another ``dtype``.

        Raises ``BufferError`` for memory that is not on the CPU, ``ValueError`` for
        ``copy=False`` with another ``dtype``.
        """
        return as_array(_core.exported(self), dtype, copy)


def as_array(
    tensor: Tensor, dtype: DTypeLike | None, copy: bool | None
) -> NDArray[Any]:
    """Return what ``__array__`` does of a tensor."""
    array = tensor.numpy()
    if dtype is None and not copy:
        return array
    import numpy as np

    if copy:
        return np.array(array, dtype=dtype, copy=True)
    if copy is False and array.dtype != np.dtype(dtype):
        raise ValueError(f"copy=False, but {array.dtype} is not {np.dtype(dtype)}")
    return np.asarray(array, dtype=dtype)
