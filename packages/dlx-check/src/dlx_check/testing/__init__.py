"""For the authors of exchange classes: the rules that a class has to keep.

``import dlx`` does not import this module. It needs no test framework::

    from dlx_check.testing import check_mixin

    def test_my_array_keeps_the_rules_of_exchange():
        check_mixin(MyArr, lambda: MyArr(np.ones(3)))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dlx_check.core import dlx

from .case import Case
from .exports import EXPORTS
from .instances import INSTANCES
from .life import LIFE

__all__ = ["check_mixin"]

T = TypeVar("T", bound=dlx.ExchangeMixin)


def check_mixin(
    cls: type[T], make: Callable[[], T], *, shares_memory: bool = True
) -> None:
    """Check that a subclass of `ExchangeMixin` keeps the rules of exchange.

    ``make`` takes no arguments and returns a new instance of exactly ``cls``, with at
    least one element and memory of its own. It is called several times. An instance
    need not be picklable, hashable or weakly referable. ``shares_memory=False`` is for
    a class whose ``__dlx_export__`` computes what it exports at each call.

    The rules, in the order in which they are checked:

    - The class has an exchange table of its own, and can be exported.
    - Each export has the same shape, strides, dtype and device, and unless
      ``shares_memory=False`` the same memory.
    - ``__dlpack__`` exports what dlx reads, ``__dlpack_device__`` names its device.
    - Unless asked for version 1, it gives an unversioned capsule.
    - ``copy=True`` gives other memory with the same elements.
    - A device that cannot be served, and a stream for memory without streams, are a
      ``BufferError``.
    - ``from_dlpack`` makes an instance that exports the tensor that it was given, keeps
      its memory alive, and does not make read-only memory writable. It changes no
      dtype; a class may refuse one.
    - ``__dlx_like__`` makes an instance over the tensor that it was given.
    - ``__dlx_empty__`` allocates new, writable memory as requested.
    - A subclass has a table of its own, and makes instances of itself.
    - An export keeps the memory alive without the instance (checked on Linux).
    - Exports leave nothing behind, and threads may export at the same time.

    A class whose memory is not on the CPU is not checked for the rules that need to
    read the memory of others. The subclass takes one of dlx's exchange tables.

    Raises ``AssertionError``, which says which rule is broken and what to change, and
    ``TypeError`` if ``cls`` is no such class.
    """
    if not (isinstance(cls, type) and issubclass(cls, dlx.ExchangeMixin)):
        raise TypeError(f"{cls!r} is no subclass of dlx.ExchangeMixin")
    for rule in (*EXPORTS, *INSTANCES, *LIFE):
        rule(Case(cls, make, shares_memory))
