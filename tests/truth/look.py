"""Compares what an entry point of dlx made of a tensor with what the library says."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType
from typing import Any

import dlx
import numpy as np

from . import duties, known
from .entries import ENTRIES, Entry
from .games import played
from .libraries import FOUND
from .said import Said, exports_read_only, is_masked
from .said_torch import is_misaligned, is_small, is_torch, undisturbed
from .says import package_of, says
from .standins import FORWARDERS, INNER
from .vetoes import is_vetoed
from .writing import computes_wrongly, flip, writable_address
from .wrong import Wrong

ACCEPTED: tuple[tuple[type[BaseException], str], ...] = (
    (BufferError, ""),
    # Objects without a protocol, or forwarding that of such an object.
    (AttributeError, "no attribute '?__(dlpack|arrow|array)|has no __dlpack"),
    (TypeError, "has no __dlpack__; "),
    (TypeError, "expected an object that dlx.from_dlpack accepts"),
    # What the array interface cannot describe: NumPy goes on to `__array__`.
    (AttributeError, "a Python buffer (requires memory on|cannot describe) "),
    # In the place of a tensor to write to.
    (TypeError, "^it is (a scalar of NumPy|an instance of .*); pass a tensor$"),
    # A bridge cannot return a class that only exports tensors.
    (TypeError, "cannot be made from a tensor: (it has no exchange|its library makes)"),
    # Scalars that are asked for their buffer.
    (TypeError, "can only exported as a buffer without format"),
    (ValueError, "devices that JAX makes of the CPU"),
    (ValueError, "^cannot include dtype .* in a buffer$"),
    (ValueError, "^Cannot export buffer from null Arrow Scalar$"),
    # JAX for 4-bit integers and inside a transform, and Paddle for a cleared tensor.
    (RuntimeError, "has no DLPack equivalent"),
    (RuntimeError, "Tensor (holds no memory|not initialized yet)"),
    (RuntimeError, "^Unsupported Paddle device type Place.undefined"),
    (TypeError, "^Abstract tracer value"),
    # pyarrow's own `__dlpack__`, whose message names the type.
    (TypeError, "DLPack"),
    # JAX's own `__array__`, of keys: it names the function that gives their bits.
    (TypeError, "^JAX array with PRNGKey dtype cannot be converted"),
    # TensorFlow's own `__array__`, inside a function that it traces.
    (NotImplementedError, "^Cannot convert a symbolic tf.Tensor"),
    (NotImplementedError, r"^numpy\(\) is only available when eager execution"),
    (NotImplementedError, "^Legacy DLPack support is not implemented"),
    # MLX for an array that another thread's stream has yet to compute.
    (RuntimeError, r"^There is no Stream\(cpu, \d+\) in current thread"),
    # torch under a mode that does not know a class.
    (TypeError, "^Multiple dispatch failed for"),
    # torch's own `__dlpack_device__`, called by an object that forwards it.
    (ValueError, "^Unknown device type .* for Dlpack$"),
)
"""Exceptions that count as refusals: class, and pattern of the message."""

THEIRS = (RuntimeError, TypeError, ValueError)
"""Exceptions by which a consumer's import, or a forwarded export, refuses a tensor."""

WITNESS = "w"
"""The name in programs of a tensor that must not change with ``x``."""

JUNK = 20
"""Blocks of garbage written over memory that may have been freed."""


@cache
def compiled(text: str, mode: str) -> CodeType:
    """Compile a line, once."""
    return compile(text, "<program>", mode)


def is_refusal(error: BaseException) -> bool:
    """Whether an entry point may raise this exception."""
    text = str(error)
    return any(
        isinstance(error, kind) and re.search(pattern, text)
        for kind, pattern in ACCEPTED
    )


def answering(x: Any, entry: Entry) -> Any:
    """Return the object whose own ``__dlpack__`` answers the entry, if there is one."""
    found = x if entry.forwards else None
    while type(x) in INNER:
        inner = vars(x)[INNER[type(x)]]
        if type(x) in FORWARDERS:
            found = inner
        x = inner
    return found


def hands_on_wrongly(x: Any, truth: Said | None) -> bool:
    """Whether a library's own ``__dlpack__`` is known to export something else.

    NumPy's and astropy's forget the mask. torch's forgets the negation, that a
    quantized tensor is seen with another dtype, that integers have less than eight
    bits, and what functionalization keeps elsewhere. TensorFlow's ends the process for
    strings.
    """
    if isinstance(x, np.ndarray):
        return is_masked(x)
    if package_of(x) == "torch":
        if not is_torch(x) or FOUND["torch"].nn.parameter.is_lazy(x):
            return False
        with undisturbed():
            is_functional = FOUND["torch"]._is_functional_tensor(x)
            forgotten = x.is_neg() or x.is_quantized or is_functional
            return bool(forgotten or is_small(x.dtype) or is_lost(x, truth))
    return package_of(x) == "tensorflow" and truth is None


def is_lost(x: Any, truth: Said | None) -> bool:
    """Whether torch's own ``__dlpack__`` fails for a tensor without memory.

    It resolves a lazy view, to see whether that is pinned, which reads the memory. Of
    a tensor with an offset, it exports the offset as the address.
    """
    if truth is not None and not x._is_zerotensor():
        return False
    try:
        return bool(x.is_conj() or x.storage_offset())
    except RuntimeError:
        return False


def cannot_tell(x: Any, truth: Said | None) -> bool:
    """Whether the numbers cannot be read: tvm-ffi has no names for complex dtypes."""
    return package_of(x) == "tvm_ffi" and truth is None


def judge(
    text: str, names: dict[str, Any], x: Any, truth: Said | None, game: str = ""
) -> Any:
    """Run an entry; return its result, None if it refused, or raise `Wrong`."""
    entry = ENTRIES[text]
    own = answering(x, entry)
    if hands_on_wrongly(own, truth) or cannot_tell(x, truth):
        return None
    version = duties.version(x) if entry.is_written_to else None
    with contextlib.ExitStack() as lent, warnings.catch_warnings(record=True) as said:
        if truth and truth.traced:
            warnings.simplefilter("always")
        try:
            with played(game) as asked:
                made = eval(compiled(text, "eval"), names | {"x": x})
                is_lent = type(made) is dlx.borrow
                y = lent.enter_context(made)[0] if is_lent else made
        except Wrong:
            raise
        except Exception as error:
            check_refusal(entry, x, own, game, error)
            return None
        compare(entry, x, y, truth, names, own, bool(said))
    duties.check_version(version, x, y)
    duties.check_table(entry, x, asked)
    return None if is_lent else made


def check_refusal(entry: Entry, x: Any, own: Any, game: str, error: Exception) -> None:
    """Raise `Wrong` if an entry may not raise this exception."""
    elsewhere = own is not None or entry.ends_elsewhere
    if game or (elsewhere and isinstance(error, THEIRS)):
        return
    if not is_refusal(error):
        raise Wrong(f"raised {type(error).__name__}: {error}") from error
    if not elsewhere:
        duties.check_help(error, x)


def check_ends(act: Callable[[], Any]) -> None:
    """Raise `Wrong` if an act ends the process, which is tried in another one."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    if os.WIFSIGNALED(os.waitpid(pid, 0)[1]):
        raise Wrong(known.ENDS)


def is_empty(y: Any) -> bool:
    """Whether there are no elements to compare."""
    shape = getattr(y, "shape", None)
    return not len(y) if shape is None else 0 in shape


def is_own(x: Any, y: Any) -> bool:
    """Whether ``y`` is not for another library than ``x``, which none may read."""
    stood_for = vars(x)[INNER[type(x)]] if type(x) in INNER else None
    arrays = is_vetoed(x) and isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
    return isinstance(y, type(x)) or y is stood_for or arrays


def compare(
    entry: Entry,
    x: Any,
    y: Any,
    truth: Said | None,
    names: dict[str, Any],
    own: Any,
    warned: bool,
) -> None:
    """Raise `Wrong` if ``y`` is not what ``truth`` says of ``x``."""
    if truth is not None:
        duties.check_device(entry, x, y, names)
    if y is x and entry.copy is not True and not entry.writes:
        if truth is not None:
            duties.check_handed_on(entry, y, names)
        return
    if truth is None:
        # Not read: the pointer may be invalid.
        if is_own(x, y) or is_empty(y):
            return
        raise Wrong(f"made {type(y).__name__} of what has no numbers to give")
    duties.check_class(entry, y, names)
    found = says(y)
    if found is None and package_of(y) == "tvm_ffi":
        return
    if found is None:
        raise Wrong(f"{type(y).__name__}, whose library has no numbers to give")
    records = own is None and not entry.lends_gradients
    if records and truth.tracked and not found.tracked:
        raise Wrong("gradients were lost without a word")
    if records and truth.traced and not warned:
        raise Wrong("a trace takes it for a constant, without a word")
    if found.dtype != truth.dtype and entry.text.startswith("jnp."):
        # Without x64, JAX uses the 32-bit types.
        return
    if found.content() != truth.content():
        raise Wrong(f"it is {found}, and not {truth}")
    if not truth.data:
        return
    if truth.protected and entry.writes and not duties.is_of_a_copy(entry, x):
        raise Wrong("memory that must not be written was given for writing")
    check_memory(entry, x, y, truth, names.get(WITNESS), own)
    if entry.lends and is_misaligned(y):
        # Imported by torch itself, which does not check the alignment.
        return
    if problem := computes_wrongly(y, truth):
        raise Wrong(problem)


def check_memory(
    entry: Entry, x: Any, y: Any, truth: Said, other: Any, own: Any
) -> None:
    """Write through ``y``, and check whether ``x`` and the witness change."""
    address = writable_address(y)
    if not address or (entry.lends and truth.protected) or y is x:
        return
    unsaid = truth.unsaid or (own is not None and not exports_read_only(own))
    if unsaid and entry.takes_all_for_writable:
        return
    before = says(other)
    flip(address)
    after, others = says(x), says(other)
    flip(address)
    if others != before:
        raise Wrong("it changes what only shares its memory until one is written to")
    changed = after is not None and after.data != truth.data
    if changed and truth.protected:
        raise Wrong("it is writable, and changes what must not be written")
    if changed and entry.copy is True:
        raise Wrong("copy=True shares the memory")
    if not changed and entry.copy is False and after is not None:
        raise Wrong("copy=False does not share the memory")


class Heard:
    """``look`` of the first run: records what the library says, without dlx."""

    def __init__(self) -> None:
        """Start empty."""
        self.truths: list[Said | None] = []

    def __call__(self, x: Any, _text: str, _game: str = "") -> Any:
        """Record what the library says."""
        self.truths.append(says(x))
        return x


class Look:
    """``look`` of the second run: checks that dlx says the same."""

    def __init__(
        self, names: dict[str, Any], truths: list[Said | None], skips: bool
    ) -> None:
        """Compare with ``truths``, in order; with ``skips``, known faults pass."""
        self.names = names
        self.truths: Iterator[Said | None] = iter(truths)
        self.skips = skips
        self.made: list[tuple[Any, Said | None]] = []
        self.refused = 0
        self.known: Counter[str] = Counter()

    def __call__(self, x: Any, text: str, game: str = "") -> Any:
        """Check one entry, while a game is played."""
        truth = next(self.truths)
        ends = known.Fault(known.ENDS, x, text, game)
        if self.skips_known(ends):
            return x
        try:
            if known.name_of(ends):
                check_ends(lambda: judge(text, self.names, x, truth, game))
            y = judge(text, self.names, x, truth, game)
        except Wrong as wrong:
            fault = known.Fault(str(wrong), x, text, game)
            if self.skips_known(fault):
                return x
            wrong.known = known.name_of(fault)
            for note in filter(None, (text, game)):
                wrong.add_note(note)
            raise
        if y is None:
            self.refused += 1
        elif y is not x:
            self.made.append((y, truth))
        return x

    def skips_known(self, fault: known.Fault) -> bool:
        """Whether a fault is to be passed over, because it is known; counts it."""
        name = known.name_of(fault) if self.skips else ""
        if name:
            self.known[name] += 1
        return bool(name)

    def read_again(self) -> None:
        """Read the result of the last entry again, after its memory may be freed."""
        for y, truth in self.made[-1:]:
            if truth is None or (found := self.found_after_junk(y, truth)) is None:
                continue
            if found.dtype == truth.dtype and found.content() != truth.content():
                wrong = Wrong(f"once its source was gone it is {found}, not {truth}")
                fault = known.Fault(str(wrong), y)
                if self.skips_known(fault):
                    continue
                wrong.known = known.name_of(fault)
                raise wrong

    def found_after_junk(self, y: Any, truth: Said) -> Said | None:
        """Return what ``y`` holds after other memory of its size was written to."""
        junk = [bytearray(b"\xa5") * max(len(truth.data), 64) for _ in range(JUNK)]
        found = says(y)
        del junk
        return found
