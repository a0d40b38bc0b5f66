"""Base classes that make a class a producer, by DLPack or the array interfaces."""

from __future__ import annotations

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, ClassVar, Self

    from numpy.typing import DTypeLike, NDArray
    from typing_extensions import CapsuleType

    from ._core import Device, DType, Tensor, _StreamLike
    from ._device_type import DeviceType

__all__ = ["ArrayInterfaceMixin", "ExchangeMixin"]


def _define_export(
    cls: type, exchange: str | None, mixin: str, others: Iterable[str] = ()
) -> None:
    """Define ``cls.__dlx_export__`` for the attribute ``exchange``, or require one.

    ``others`` are further keywords of the class, which a base may take.
    """
    if exchange is not None:
        exchange = _attribute_name(exchange, cls)
        if "__dlx_export__" in vars(cls):
            raise TypeError(
                f"{cls.__qualname__} has both exchange={exchange!r} and a "
                "__dlx_export__; expected one of them"
            )

        def __dlx_export__(self: object) -> object:
            try:
                return getattr(self, exchange)
            except AttributeError:
                if (missing := _missing(self, exchange)) is None:
                    raise
                raise missing from None

        __dlx_export__.__qualname__ = f"{cls.__qualname__}.__dlx_export__"
        __dlx_export__.__doc__ = f"What is exported: the attribute ``{exchange}``."
        __dlx_export__.__dlx_attribute__ = exchange  # type: ignore[attr-defined]
        # A metaclass may override assignment.
        type.__setattr__(cls, "__dlx_export__", __dlx_export__)
    elif not hasattr(cls, "__dlx_export__"):
        from difflib import get_close_matches

        close = get_close_matches("exchange", others, 1)
        raise TypeError(
            f"{cls.__qualname__} does not say what it exports: name an attribute, "
            f'class {cls.__name__}(dlx.{mixin}, exchange="data"), '
            "or define a method, def __dlx_export__(self), "
            "that returns anything dlx.from_dlpack takes"
            + "".join(f"; did you mean exchange= by {each}=?" for each in close)
        )


def _missing(x: object, exchange: str) -> AttributeError | None:
    """Return the error for an instance without the attribute that it exports.

    None if the class decides what that is.
    """
    from difflib import get_close_matches
    from types import MemberDescriptorType

    spaces = [vars(base) for base in type(x).__mro__]
    found = [space[exchange] for space in spaces if exchange in space]
    is_slot = bool(found) and isinstance(found[0], MemberDescriptorType)
    if (found and not is_slot) or any("__getattr__" in space for space in spaces):
        return None
    there = [name for name in _state(x) if isinstance(name, str)]
    close = get_close_matches(exchange, there, 1)
    there = [*map(repr, there[:9]), *(["..."] if there[9:] else [])]
    said = f"it has {', '.join(there)}" if there else "it has none"
    return AttributeError(
        f"exchange={exchange!r} names an attribute that this {type(x).__qualname__} "
        f"does not have; {said}"
        + "".join(f"; did you mean {each!r}?" for each in close),
        name=exchange,
        obj=x,
    )


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


def _attribute_name(name: object, cls: type) -> str:
    """Return the attribute that ``name`` means in the body of ``cls``."""
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


def _reduce_ex(self: Any, protocol: int) -> Any:
    # What its tensor leaves (`dlx.pickling`), but for the type at the other end.
    arrive, fields = _core.from_dlpack(self).__reduce_ex__(protocol)
    version, _dlx, *rest = fields
    made = arrive, (version, type(self), *rest)
    state = _beside(self)
    # Not by `__setstate__`: that of a dataclass expects all fields.
    return (*made, state, None, None, _set) if any(state) else made


def _beside(x: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the attributes that are what an instance exports, and the others."""
    name = getattr(type(x).__dlx_export__, "__dlx_attribute__", None)
    exported = x.__dlx_export__() if name is None else getattr(x, name)
    state = _state(x)
    state.pop(name or "", None)
    same = [key for key, value in state.items() if value is exported]
    others = {key: value for key, value in state.items() if key not in same}
    if name is None and others:  # Its memory may be in any of them.
        raise TypeError(
            f"{type(x).__qualname__} has {min(others)!r} beside what it exports, "
            "which a pickle of the tensor leaves out; define __reduce_ex__, or name "
            "what is exported by exchange="
        )
    return same, others


def _state(x: object) -> dict[str, Any]:
    """Return the attributes of an instance, in its dictionary and its slots."""
    state = object.__getstate__(x)
    parts = state if isinstance(state, tuple) else (state,)
    return {key: value for part in parts if part for key, value in part.items()}


def _set(made: Any, state: tuple[list[str], dict[str, Any]]) -> None:
    """Give an instance the attributes of another; called by ``pickle``."""
    same, others = state
    if same:
        others |= dict.fromkeys(same, made.__dlx_export__())
    for name, value in others.items():
        object.__setattr__(made, name, value)


def _copied(self: Any, memo: dict[int, Any] | None = None) -> Any:
    # As `copy` does for a class that says nothing of pickles: with all attributes.
    import copy

    parts = object.__reduce_ex__(self, 4)
    return copy._reconstruct(self, memo, *parts)  # type: ignore[attr-defined]


def _define_pickle(cls: type) -> None:
    """Let pickles of instances hold the tensor alone, and leave copies as they are."""
    if "__reduce_ex__" in vars(cls):
        raise TypeError(
            f"{cls.__qualname__} has pickle=True and defines __reduce_ex__; "
            "leave one of them out"
        )
    type.__setattr__(cls, "__reduce_ex__", _reduce_ex)
    for name in ("__copy__", "__deepcopy__"):
        if not hasattr(cls, name):
            type.__setattr__(cls, name, _copied)


def _check_pickle(cls: type) -> None:
    """Refuse what pickles of the tensor alone would ignore."""
    for name in ("__reduce__", "__getstate__", "__setstate__"):
        if name in vars(cls):
            raise TypeError(
                f"{cls.__qualname__} defines {name}, which pickle=True ignores; define "
                "__reduce_ex__ in a subclass, or leave pickle=True out; attrs defines "
                "it unless getstate_setstate=False"
            )


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
    makes the instance at the other end, which then gets these. A class with
    ``__dlx_export__`` and more attributes is a ``TypeError``, unless it defines
    ``__reduce_ex__``. Copies have all attributes in either case.

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
        _define_export(cls, exchange, "ExchangeMixin", keywords)
        _define_protocol(cls)
        if pickle:
            _define_pickle(cls)
        if cls.__reduce_ex__ is _reduce_ex:
            _check_pickle(cls)
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
        _define_export(cls, exchange, "ArrayInterfaceMixin", keywords)
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
