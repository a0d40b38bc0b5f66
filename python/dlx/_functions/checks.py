"""What `dlx.launcher` checks at each call: ``shape``, ``size``, and positions."""

from __future__ import annotations

import operator
import re
from inspect import Parameter

from .. import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    # What an option says of parameters.
    Said = Mapping[str | int, Any]

    # A length, the name of one, or "..." for any number of dimensions.
    Dims = tuple[int | str, ...]

    # The lengths that names stand for, and where each was found.
    Known = dict[str, tuple[Any, str]]

__all__ = ["Checks", "dims_of"]

_ANY = "..."
_DIM = re.compile(r"[^\W\d]\w*|\d+|\.\.\.")


def dims_of(option: str, said: Any) -> Dims | None:
    """Return the lengths that ``shape`` or ``size`` says; None of None."""
    if said is None:
        return None
    is_shape, words, is_right = option == "shape", [], False
    if is_shape and said == "same":
        return (_ANY,)
    if type(said) is int or isinstance(said, str):
        words = [word.strip() for word in str(said).split(None if is_shape else "*")]
        is_right = all(map(_DIM.fullmatch, words)) and words.count(_ANY) <= is_shape
    if not is_right:
        like = "'n 3', '... n' or 'same'" if is_shape else "'n', '2*n*m' or 16"
        raise ValueError(f"{option} is {said!r}; expected one like {like}")
    return tuple(int(word) if word.isdecimal() else word for word in words)


class Checks:
    """Refuses a call of a launched function; called as that is, with `Tensor` views.

    ``of`` returns what an option says of a parameter. ``fixed`` are those that may be
    passed by position, of which the first ``receivers`` are left alone, and ``least``
    of which a call has to pass so. ``numbers`` has the defaults of all that have a
    name.
    """

    def __init__(
        self,
        of: Callable[[str | int, Said], Any],
        fixed: list[str | int],
        numbers: Mapping[str, Any],
        has_keywords: bool,
        receivers: int,
        least: int,
        note: Callable[..., None],
        shapes: Said,
        sizes: Said,
    ) -> None:
        self.of, self.fixed, self.receivers, self.note = of, fixed, receivers, note
        self.shapes, self.sizes, self.least = shapes, sizes, least
        names = _names(shapes.values()) | _names(sizes.values())
        # The parameters that are lengths, with their defaults.
        self.numbers = {name: numbers[name] for name in names & numbers.keys()}
        # What else may be a keyword of a call.
        self.others = names - numbers.keys() if has_keywords else set()
        free = _names(sizes.values()) - _names(shapes.values()) - numbers.keys()
        if free and not has_keywords:
            raise ValueError(
                f"size has {min(free)!r}, which is neither a parameter of the function "
                "nor in shape"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Refuse a call, of which these are the arguments, with tensors of dlx."""
        if len(args) < self.least:
            raise TypeError(
                f"the call has {len(args)} arguments by position, and an option says "
                f"something of position {self.least - 1}; pass all up to that so"
            )
        known = self.lengths(args, kwargs)
        if known is None:
            return
        positions = range(len(self.fixed), len(args))
        names = (*self.fixed[: len(args)], *positions, *kwargs)
        tensors = [
            (index, name, x)
            for index, (name, x) in enumerate(
                zip(names, (*args, *kwargs.values()), strict=True)
            )
            if isinstance(x, _core.Tensor) and index >= min(self.receivers, len(args))
        ]
        for check in self.shape, self.size:
            for index, name, x in tensors:
                try:
                    check(name, x, known)
                except Exception as error:
                    self.note(error, index, len(args), tuple(kwargs))
                    raise

    def lengths(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Known | None:
        """Return the lengths that arguments say; None if the call lacks one."""
        known: Known = {}
        for name in [*self.numbers, *(self.others & kwargs.keys())]:
            value = kwargs.get(name, self.numbers.get(name))
            at = self.fixed.index(name) if name in self.fixed else len(args)
            if at < len(args):
                value = args[at]
            if value is Parameter.empty:
                return None  # The function will say so.
            what = f"the argument {name}, a length in shape or size, is"
            if isinstance(value, _core.Tensor) or not hasattr(value, "__index__"):
                raise TypeError(f"{what} a {type(value).__name__}; expected an int")
            length = operator.index(value)  # type: ignore[arg-type]
            if length < 0:
                raise ValueError(f"{what} {length}; expected 0 or more")
            known[name] = length, f"the argument {name}"
        return known

    def shape(self, name: str | int, x: _core.Tensor, known: Known) -> None:
        """Refuse another shape than that of a parameter; note the lengths in it."""
        dims: Dims | None = self.of(name, self.shapes)
        if dims is None:
            return
        shape: list[Any] = [*x.shape]
        if _ANY in dims:
            # Its dimensions become one, which is a list.
            first, others = dims.index(_ANY), len(dims) - 1
            if len(shape) >= others:
                last = first + len(shape) - others
                shape[first:last] = [shape[first:last]]
        if len(shape) == len(dims):
            found = dict(known)
            for dim, extent in zip(dims, shape, strict=True):
                if isinstance(dim, str):
                    found.setdefault(dim, (extent, f"that of argument {name}"))
            if shape == [
                found[dim][0] if isinstance(dim, str) else dim for dim in dims
            ]:
                known.update(found)
                return
        said = " ".join(map(str, dims))
        raise BufferError(
            f"the tensor has shape {list(x.shape)}, and shape accepts {said!r}"
            f"{_where(dims, known)}"
        )

    def size(self, name: str | int, x: _core.Tensor, known: Known) -> None:
        """Refuse fewer elements than a kernel touches."""
        dims: Dims | None = self.of(name, self.sizes)
        if dims is None:
            return
        product = 1
        for dim in dims:
            if isinstance(dim, str):
                if dim not in known:
                    raise ValueError(
                        f"size has {dim!r}, and no tensor of the call says what it is"
                    )
                product *= known[dim][0]
            else:
                product *= dim
        if x.size < product:
            said = "*".join(map(str, dims))
            raise BufferError(
                f"the tensor has {x.size} elements, and size={said!r} accepts "
                f"{product} or more{_where(dims, known)}"
            )


def _names(dims: Iterable[Dims | None]) -> set[str]:
    """Return the names of lengths."""
    each = (dim for of in dims for dim in of or () if isinstance(dim, str))
    return {*each} - {_ANY}


def _where(dims: Dims, known: Known) -> str:
    """Say what the names in dimensions stand for, and why."""
    names = [dim for dim in dict.fromkeys(dims) if isinstance(dim, str)]
    said = ["{} is {}, {}".format(dim, *known[dim]) for dim in names if dim in known]
    return f", where {', and '.join(said)}" if said else ""
