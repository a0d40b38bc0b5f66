"""What `dlx.launcher` checks at each call: ``shape``, ``size``, and positions."""

from __future__ import annotations

import operator
import re
from inspect import Parameter
from sys import maxsize

from .. import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    # What an option says of parameters.
    Said = Mapping[str | int, Any]

    # A length, the name of one, or "..." for any number of dimensions.
    Dims = tuple[int | str, ...]

    # The lengths that names stand for; "..." for a list of them.
    Known = dict[int | str, Any]

    # A parameter, its shape and its size.
    Found = tuple[str | int, Dims | None, Dims | None]

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
        in_shapes, in_sizes = _lengths(shapes), _lengths(sizes)
        names = {each for each in in_shapes | in_sizes if isinstance(each, str)}
        # What is known before a call: the lengths that are numbers.
        self.known: Known = {n: n for n in in_shapes | in_sizes if isinstance(n, int)}
        self.named = [self.found(name) for name in fixed]
        # The parameters that are lengths: their positions, if any, and their defaults.
        self.numbers = {
            name: (fixed.index(name) if name in fixed else maxsize, numbers[name])
            for name in names & numbers.keys()
        }
        # What else may be a keyword of a call.
        self.others = names - numbers.keys() if has_keywords else set()
        free = sorted(name for name in names - in_shapes if name not in numbers)
        if free and not has_keywords:
            known = f"expected one of {', '.join(numbers)}"
            if not numbers:
                known = (
                    "it has no names: launch a Python function that has this parameter "
                    "and calls it"
                )
            raise ValueError(
                f"size has {free[0]!r}, which is neither a parameter of the function "
                f"nor in shape; {known}"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Refuse a call, of which these are the arguments, with tensors of dlx."""
        if len(args) < self.least:
            raise TypeError(
                f"the call has {len(args)} arguments by position, and an option says "
                f"something of position {self.least - 1}; pass that by position, too"
            )
        known = self.known.copy()
        if not self.say(known, args, kwargs):
            return
        count, named = len(args), self.named
        tensors = [
            (index, x, named[index] if index < len(named) else self.found(index))
            for index, x in enumerate(args)
            if isinstance(x, _core.Tensor) and index >= self.receivers
        ]
        if kwargs:
            tensors += [
                (count + index, x, self.found(name))
                for index, (name, x) in enumerate(kwargs.items())
                if isinstance(x, _core.Tensor)
            ]
        for at, (index, x, (_, dims, _)) in enumerate(tensors):
            if dims is not None and not _fits(dims, x.shape, known):
                said = " ".join(map(str, dims))
                what = f"shape {list(x.shape)}, and shape accepts {said!r}"
                self.refuse(what, dims, index, tensors[:at], args, kwargs)
        for index, x, (_, _, dims) in tensors:
            if dims is None:
                continue
            least = 1
            for dim in dims:
                if dim not in known:
                    raise ValueError(
                        f"size has {dim!r}, and no tensor of the call says what it is"
                    )
                least *= known[dim]
            if x.size < least:
                said = "*".join(map(str, dims))
                what = f"{x.size} elements, and size={said!r} accepts {least} or more"
                self.refuse(what, dims, index, tensors, args, kwargs)

    def found(self, name: str | int) -> Found:
        """Return what is said of a parameter."""
        return name, self.of(name, self.shapes), self.of(name, self.sizes)

    def say(self, known: Known, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Add the lengths that arguments say; return whether the call has them all."""
        for name, (at, default) in self.numbers.items():
            value = args[at] if at < len(args) else kwargs.get(name, default)
            if value is Parameter.empty:
                return False  # The function will say so.
            known[name] = _length(name, value)
        for name in self.others & kwargs.keys():
            known[name] = _length(name, kwargs[name])
        return True

    def refuse(
        self,
        what: str,
        dims: Dims,
        index: int,
        before: list[tuple[int, _core.Tensor, Found]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Raise what a tensor has, and where the names that it breaks come from."""
        known = self.known.copy()
        self.say(known, args, kwargs)
        whose = dict.fromkeys(known, "the argument {}")
        for _, x, (name, shape, _) in before:
            _fits(shape or (), x.shape, known)
            for each in known.keys() - whose.keys():
                whose[each] = f"that of argument {name}"
        said = [
            f"{dim} is {known[dim]}, {whose[dim].format(dim)}"
            for dim in dict.fromkeys(dims)
            if isinstance(dim, str) and dim in known
        ]
        where = f", where {', and '.join(said)}" if said else ""
        error = BufferError(f"the tensor has {what}{where}")
        self.note(error, index, len(args), tuple(kwargs))
        raise error


def _fits(dims: Dims, shape: tuple[int, ...], known: Known) -> bool:
    """Whether a shape is what dimensions say; the names in it are known then."""
    extents: Any = shape
    if _ANY in dims:
        # Its dimensions become one, which is a list.
        first, others = dims.index(_ANY), len(dims) - 1
        if len(shape) < others:
            return False
        last = first + len(shape) - others
        extents = [*shape[:first], [*shape[first:last]], *shape[last:]]
    if len(extents) != len(dims):
        return False
    for dim, extent in zip(dims, extents, strict=True):
        if known.setdefault(dim, extent) != extent:
            return False
    return True


def _length(name: str, value: Any) -> int:
    """Return the length that an argument is."""
    if type(value) is int and value >= 0:
        return value
    what = f"the argument {name}, a length in shape or size, is"
    if isinstance(value, _core.Tensor):
        raise TypeError(f"{what} a tensor; expected an int, as {name}.item() is")
    if not hasattr(value, "__index__"):
        raise TypeError(f"{what} a {type(value).__name__}; expected an int")
    if (length := operator.index(value)) < 0:
        raise ValueError(f"{what} {length}; expected 0 or more")
    return length


def _lengths(said: Said) -> set[int | str]:
    """Return the lengths in an option, and their names."""
    return {each for dims in said.values() for each in dims or ()} - {_ANY}
