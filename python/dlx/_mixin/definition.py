"""What the definition of a class says that its instances export."""

from __future__ import annotations

from .pickled import state_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["define_export", "missing"]


def define_export(
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
            except AttributeError as error:
                if (other := missing(self, exchange, error)) is None:
                    raise
                raise other from None

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


def missing(x: object, exchange: str, error: Exception) -> AttributeError | None:
    """Return the error for an instance without the attribute that it exports.

    None if the class decides what that is, and has said so in this ``error``.
    """
    from difflib import get_close_matches
    from types import MemberDescriptorType

    if not isinstance(error, AttributeError):
        return None
    spaces = [vars(base) for base in type(x).__mro__]
    found = [space[exchange] for space in spaces if exchange in space]
    is_slot = bool(found) and isinstance(found[0], MemberDescriptorType)
    # A `__getattr__` that only asks what the instance holds says nothing of it.
    is_of_inner = error.name == exchange and error.obj is not x
    is_asked = any("__getattr__" in space for space in spaces)
    is_asked |= type(x).__getattribute__ is not object.__getattribute__
    if (found and not is_slot) or (is_asked and not is_of_inner):
        return None
    there = [name for name in state_of(x) if isinstance(name, str)]
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
