"""Pickles of instances that hold the tensor without a copy."""

from __future__ import annotations

from .. import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["beside", "check_pickle", "define_pickle", "reduce_ex", "state_of"]


def reduce_ex(self: Any, protocol: int) -> Any:
    _check_import(type(self))
    # What its tensor leaves (`dlx.pickling`), but for the type at the other end.
    arrive, fields = _core.from_dlpack(self).__reduce_ex__(protocol)
    version, _dlx, *rest = fields
    made = arrive, (version, type(self), *rest)
    state = beside(self)
    # Not by `__setstate__`: that of a dataclass expects all fields.
    return (*made, state, None, None, _set) if any(state) else made


def beside(x: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the attributes that are what an instance exports, and the others."""
    name = getattr(type(x).__dlx_export__, "__dlx_attribute__", None)
    exported = x.__dlx_export__() if name is None else getattr(x, name)
    state = state_of(x)
    state.pop(name or "", None)
    same = [key for key, value in state.items() if value is exported]
    others = {key: value for key, value in state.items() if key not in same}
    if name is None and others:  # Its memory may be in any of them.
        raise TypeError(
            f"{type(x).__qualname__} has {min(others)!r} beside what it exports, "
            "which a pickle of the tensor leaves out; define __reduce_ex__ in a "
            "subclass, or name what is exported by exchange="
        )
    return same, others


def _check_import(cls: Any) -> None:
    """Refuse a class that no tensor alone makes, of which nobody could read a pickle.

    Only the usual is looked at: a function in Python, and no import of its own.
    """
    init = cls.__init__
    code = getattr(init, "__code__", None)
    if code is None or cls.__dlx_import__.__func__.__module__ != __package__:
        return
    needed = code.co_argcount - len(init.__defaults__ or ())
    if needed > 2 or code.co_kwonlyargcount > len(init.__kwdefaults__ or ()):
        raise TypeError(
            f"{cls.__qualname__} needs more than a tensor to be made, so nobody could "
            "read its pickle; define a class method, def __dlx_import__(cls, tensor), "
            "which then gets the other attributes"
        )


def state_of(x: object) -> dict[str, Any]:
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


def define_pickle(cls: type) -> None:
    """Let pickles of instances hold the tensor alone, and leave copies as they are."""
    if "__reduce_ex__" in vars(cls):
        raise TypeError(
            f"{cls.__qualname__} has pickle=True and defines __reduce_ex__; "
            "leave one of them out"
        )
    type.__setattr__(cls, "__reduce_ex__", reduce_ex)
    for name in ("__copy__", "__deepcopy__"):
        if not hasattr(cls, name):
            type.__setattr__(cls, name, _copied)


_HOOKS = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
_IMMUTABLE = 1 << 8  # of the flags of a type: no class statement made it


def check_pickle(cls: type) -> None:
    """Refuse what pickles of the tensor alone would ignore."""
    for base in cls.__mro__:
        if base.__flags__ & _IMMUTABLE:
            continue  # the state of its C code is what is exported
        for name in _HOOKS:
            hook = vars(base).get(name, reduce_ex)
            # That of `dataclass` keeps all fields, as is done here.
            if hook is reduce_ex or getattr(hook, "__module__", "") == "dataclasses":
                continue
            raise TypeError(
                f"{cls.__qualname__} has {name} of {base.__qualname__}, which "
                "pickle=True ignores; define __reduce_ex__ in a subclass, or leave "
                "pickle=True out; attrs defines it unless getstate_setstate=False"
            )
