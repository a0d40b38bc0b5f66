"""Types, classes and tables that threads meet, make and publish at the same moment."""

from collections.abc import Callable
from functools import partial
from typing import Any

import dlx
import numpy as np
import pytest
from support.concurrent_threads import together
from support.dlx_producers import Stored
from support.python_process import run_python

pytestmark = pytest.mark.slow


def _called(function: Callable[[Any], Any], x: Any, index: int) -> list[Any]:
    return [function(x) for _ in range(20)]


def test_a_bridged_function_meets_types_in_many_threads() -> None:
    """What it learns of a type is learnt once, whoever comes first."""
    for _ in range(20):
        kind = type("Fresh", (Stored,), {}, exchange="data")
        double = dlx.bridge(np.ndarray, result=np.ndarray)(lambda x: x * 2)
        given = kind(np.arange(3.0))
        made = together(partial(_called, double, given))
        found = {tuple(one) for part in made for one in part}
        assert found == {(0.0, 2.0, 4.0)}


# What changes classes for the whole process, or uses up what it has of something.

PRELUDE = """
import faulthandler, gc, random, sys, threading, weakref
faulthandler.dump_traceback_later(300, exit=True)
import dlx, numpy as np
from support.dlpack_abi import *
from support.concurrent_threads import THREADS, together

NAME = "__dlpack_c_exchange_api__"
array = np.arange(3.0)
# No collection looks at what was imported.
gc.freeze()

def value(x):
    return tuple(np.asarray(dlx.from_dlpack(x)))
"""

PUBLISHED = {
    "a Python class": """
        class Kind:
            def __init__(self):
                self.data = array
            def __dlpack__(self, **keywords):
                return self.data.__dlpack__(**keywords)
            def __dlpack_device__(self):
                return (1, 0)
            @classmethod
            def from_dlpack(cls, x):
                return cls()
        x = Kind()
        """,
    "NumPy": """
        Kind, x = np.ndarray, array
        """,
}


@pytest.mark.parametrize("kind", PUBLISHED.values(), ids=PUBLISHED)
def test_a_table_is_published_and_taken_back_by_all_threads_at_once(kind: str) -> None:
    """Nobody sees an error, and nobody a table that is no table."""
    code = """
        def work(index):
            seen = set()
            for turn in range(400):
                match (index + turn) % 4:
                    case 0: dlx.publish(Kind)
                    case 1: dlx.unpublish(Kind)
                    case 2:
                        found = getattr(Kind, NAME, None)
                        if found is not None:
                            seen.add(capsule_pointer(found, b"dlpack_exchange_api"))
                    case 3: assert value(x) == (0, 1, 2)
            return seen

        tables = set().union(*together(work))
        assert len(tables) <= 1, tables
        dlx.unpublish(Kind)
        assert NAME not in vars(Kind)
        dlx.publish(Kind)
        assert NAME in vars(Kind) and value(x) == (0, 1, 2)
        """
    assert run_python(PRELUDE + _dedented(kind) + _dedented(code)) == (0, "", "")


def test_mixin_classes_come_and_go_in_all_threads() -> None:
    """S14: each has a table of its own or its base's, and all of them die."""
    code = """
        import warnings
        warnings.simplefilter("ignore")

        def work(index):
            dead = []
            for turn in range(90):
                def init(self, data):
                    self.data = data
                made = type("Made", (dlx.ExchangeMixin,), {"__init__": init},
                            exchange="data")
                x = made(array * index)
                assert value(x) == (0, index, 2 * index)
                table = table_of(made)
                managed = from_table(table, x)
                assert managed.dl_tensor.data == x.data.ctypes.data
                delete(managed)
                dead.append(weakref.ref(made))
                del made, x, init
                if turn % 16 == index:
                    gc.collect()
            return dead

        classes = [one for part in together(work) for one in part]
        gc.collect()
        gc.collect()
        assert len(classes) == 90 * THREADS
        assert not [one for one in classes if one() is not None]
        """
    assert run_python(PRELUDE + _dedented(code)) == (0, "", "")


def test_types_are_met_for_the_first_time_by_all_threads() -> None:
    """S6: more of them than the cache keeps, each by all threads at once."""
    code = """
        def dlpack(self, **keywords):
            return array.__dlpack__(**keywords)

        body = {"__dlpack__": dlpack, "__dlpack_device__": lambda self: (1, 0)}
        objects = [type(f"Met{number}", (), dict(body))() for number in range(5000)]

        def work(index):
            return sum(value(x) == (0, 1, 2) for x in objects)

        assert together(work) == [5000] * THREADS
        """
    assert run_python(PRELUDE + _dedented(code)) == (0, "", "")


def test_threads_may_work_while_others_collect_garbage() -> None:
    """R145: a collection stops the world, and what waits for a lock of dlx with it."""
    code = """
        class Stored(dlx.ExchangeMixin, exchange="data"):
            def __init__(self, data):
                self.data = data

        def work(index):
            if index < 2:
                for _ in range(300):
                    gc.collect()
                return True
            for turn in range(600):
                ring = [Stored(array)]
                ring.append(ring)
                with dlx.borrow(array, dlx.from_dlpack(ring[0])) as (one, other, _):
                    assert one.shape == other.shape == (3,)
                assert value(ring[0]) == (0, 1, 2)
            return True

        assert all(together(work))
        """
    assert run_python(PRELUDE + _dedented(code)) == (0, "", "")


def _dedented(code: str) -> str:
    return "\n".join(line.removeprefix(" " * 8) for line in code.splitlines())
