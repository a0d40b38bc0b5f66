"""How long classes, instances and what they export live; many classes, many threads."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dlx
import numpy as np
import pytest
from support.dlpack_abi import Allocation, capsule_pointer, delete, from_table, table_of
from support.dlx_producers import ByMethod, Stored
from support.fake_producers import Producer
from support.libc import needs_heap_in_use
from support.python_process import run_after
from support.short_lived_classes import mixin_class, to_object


def refuse(instance: Any) -> None:
    """Ask for what cannot be exported."""
    with pytest.raises(TypeError):
        instance.__dlpack__()


USES: dict[str, Callable[[Any], Any]] = {
    "no use": lambda kind: None,
    "dlx": lambda kind: dlx.from_dlpack(kind(np.zeros(3))),
    "capsule": lambda kind: kind(np.zeros(3)).__dlpack__(),
    "device": lambda kind: kind(np.zeros(3)).__dlpack_device__(),
    "import": lambda kind: kind.from_dlpack(np.zeros(3)),
    "numpy": lambda kind: np.from_dlpack(kind(np.zeros(3))),
    "table": lambda kind: delete(from_table(table_of(kind), kind(np.zeros(3)))),
    "table of its base": lambda kind: delete(
        from_table(table_of(dlx.ExchangeMixin), kind(np.zeros(3)))
    ),
    "made": lambda kind: to_object(table_of(kind)),
    "allocated": lambda kind: Allocation(kind, (2, 3)).delete(),
    "asked for": lambda kind: dlx.exchange_api(kind),
    "inside another": lambda kind: dlx.from_dlpack(Stored(kind(np.zeros(3)))),
    "subclassed": lambda kind: mixin_class(kind),
    "refused": lambda kind: refuse(kind(5)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_class_dies_with_its_last_reference(use: Callable[[Any], Any]) -> None:
    """R114: its table lives on, the class and what its body holds do not."""
    held = Producer()
    kind = mixin_class(held=held)
    gone, held_gone = weakref.ref(kind), weakref.ref(held)
    use(kind)
    del kind, held
    gc.collect()
    assert (gone(), held_gone()) == (None, None)


def test_a_class_lives_as_long_as_its_instances() -> None:
    """R130: a consumer may still hand one back."""
    kind = mixin_class()
    table, instance = table_of(kind), kind(np.zeros(3))
    del kind
    gc.collect()
    assert type(to_object(table)) is type(instance)


@pytest.mark.parametrize("kind", [Stored, ByMethod])
def test_an_instance_dies_while_its_exports_live(kind: Any) -> None:
    """R15: they hold what it stood for."""
    producer = Producer()
    instance = kind(producer)
    gone = weakref.ref(instance)
    held = [
        dlx.from_dlpack(instance),
        np.from_dlpack(instance),
        instance.__dlpack__(max_version=(1, 3)),
        instance.__dlpack__(),
    ]
    managed = from_table(table_of(kind), instance)
    del instance
    assert gone() is None
    assert producer.deleted == 0
    while held:
        held.pop()
    delete(managed)
    assert producer.deleted == len(producer.exports) == 5


def test_what_a_method_makes_lives_as_long_as_the_export() -> None:
    """R15: nobody else holds it."""
    made: list[Any] = []

    class Making(ByMethod):
        def __dlx_export__(self) -> Any:
            producer = Producer()
            made.append((weakref.ref(producer), producer.exports))
            return producer

    tensor = dlx.from_dlpack(Making(None))
    [(gone, exports)] = made
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert exports[0].deleted == 0
    del tensor
    assert exports[0].deleted == 1
    assert gone is not None


def test_an_instance_that_owns_itself_is_collected() -> None:
    """R15: memory whose owner is the instance, exported by method."""
    memory = np.arange(6.0)

    class Owner(dlx.ExchangeMixin):
        def __dlx_export__(self) -> Any:
            return dlx.from_pointer(memory.ctypes.data, (6,), "float64", owner=self)

    instance = Owner()
    gone = weakref.ref(instance)
    array = np.from_dlpack(instance)
    del instance
    gc.collect()
    assert gone() is not None
    assert array.tolist() == memory.tolist()
    del array
    gc.collect()
    assert gone() is None


def test_a_made_object_holds_the_tensor_and_nobody_else_does() -> None:
    """R130, R8: by `from_dlpack` and by the class's own `__init__`."""
    producer = Producer()
    for make in (Stored.from_dlpack, lambda x: Stored(dlx.from_dlpack(x))):
        before = producer.deleted
        made = make(producer)
        assert producer.deleted == before
        del made
        assert producer.deleted == before + 1


def test_asking_for_the_table_changes_no_reference_count() -> None:
    """R115, R129: neither of the class nor of the instance."""
    kind, instance = Stored, Stored(np.zeros(3))
    before = sys.getrefcount(kind), sys.getrefcount(instance)
    for _ in range(10):
        assert hasattr(instance, "__dlpack_c_exchange_api__")
    assert (sys.getrefcount(kind), sys.getrefcount(instance)) == before


# Many classes.

IMPORTS = """
    import atexit, gc, sys, threading, warnings
    from concurrent.futures import ThreadPoolExecutor
    import dlx
    from support.dlpack_abi import capsule_pointer, delete, from_table, table_of
    from support.libc import heap_in_use
    from support.short_lived_classes import *
"""
MANY = """
    warnings.simplefilter("ignore")
    memory = memoryview(bytearray(12))

    def define(count):
        for _ in range(count):
            kind = mixin_class()
            tensor = dlx.from_dlpack(kind(memory))
            kind.from_dlpack(tensor)
            delete(from_table(table_of(kind), kind(tensor)))
            del kind
        gc.collect()
        return sys.getallocatedblocks(), len(gc.get_objects()), heap_in_use()

    define({first})
    before = define(1000)
    after = define({count})
    blocks, objects, heap = (b - a for a, b in zip(before, after))
    # Less than a byte of each class: malloc's own ups and downs.
    print(blocks < {count} // 100, objects < 10, heap < {count})
    print(blocks, objects, heap, file=sys.stderr) if heap >= {count} else 0
"""


@needs_heap_in_use
def test_tens_of_thousands_of_classes_come_and_go() -> None:
    """R114: neither memory nor objects stay, once the pool is used up."""
    count = 100_000 if os.environ.get("DLX_EVERY") else 20_000
    code = MANY.format(first=600, count=count)
    assert run_after(IMPORTS, code) == (0, "True True True\n", "")


@needs_heap_in_use
def test_a_dead_class_leaves_a_few_bytes() -> None:
    """R114: its table stays, and with it a name."""
    code = """
        def define(count):
            for number in range(count):
                mixin_class(held=bytearray(1 << 16))
                if number % 10 == 0:
                    gc.collect()
            gc.collect()
            return heap_in_use() + 64 * sys.getallocatedblocks()

        before = define(50)
        print((define(400) - before) // 400 < 1000)
        """
    assert run_after(IMPORTS, code) == (0, "True\n", "")


def test_threads_define_classes_at_once() -> None:
    """R145: each gets a table of its own, and works while others come and go."""
    code = """
        sys.setswitchinterval(1e-6)
        warnings.simplefilter("ignore")
        memory = memoryview(bytearray(12))
        barrier = threading.Barrier(8)

        def work(index):
            barrier.wait()
            kept = []
            for number in range(120):
                kind = mixin_class()
                assert dlx.from_dlpack(kind(memory)).size == 12
                delete(from_table(table_of(kind), kind(memory)))
                made = type(to_object(table_of(kind)))
                assert made in (kind, dlx.Tensor), made
                if number % 3 == 0:
                    kept.append((kind, made))
            return kept

        with ThreadPoolExecutor(8) as pool:
            kept = [pair for part in pool.map(work, range(8)) for pair in part]
        owners = [kind for kind, made in kept if made is kind]
        pointers = {
            capsule_pointer(kind.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
            for kind in owners
        }
        print(len(pointers) == len(owners) >= 100)
        print(all(type(to_object(table_of(kind))) is kind for kind in owners))
        """
    assert run_after(IMPORTS, code) == (0, "True\nTrue\n", "")


def test_threads_export_instances_of_one_class() -> None:
    """R145: all ways out at once."""
    producer = Producer()
    instances = [kind(producer) for kind in (Stored, ByMethod)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(index: int) -> bool:
        instance = instances[index % 2]
        for _ in range(200):
            delete(from_table(table_of(type(instance)), instance))
            instance.__dlpack__()
            assert type(to_object(table_of(type(instance)))) is type(instance)
        return True

    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert producer.deleted == len(producer.exports) == 8 * 200 * 2


# The end of the process.

ENDINGS = {
    "classes and instances": "kept = [mixin_class()(memory) for _ in range(5)]",
    "a cycle": "kind = mixin_class(); kind.me = kind(memory); kind.me.kind = kind",
    "exports": "kept = [mixin_class()(memory).__dlpack__() for _ in range(5)]",
    "tensors": "kept = dlx.from_dlpack(mixin_class()(memory))",
    "an atexit function": (
        "atexit.register(lambda kind: dlx.from_dlpack(kind(memory)), mixin_class())"
    ),
    "a class defined at exit": "atexit.register(mixin_class)",
    "a __del__ that exports": """
class Last:
    def __del__(self):
        try:
            self.kind(memory).__dlpack__()
        except Exception:
            pass
last = Last()
last.kind = mixin_class()
sys.last = last
""",
    "provided tables": "dlx.exchange_api(Producer); dlx.publish(Producer)",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_process_ends_quietly(ending: str) -> None:
    """R14: with classes, instances and exports alive."""
    code = "memory = memoryview(bytearray(12))\n"
    assert run_after(IMPORTS, code + ending) == (0, "", "")


def test_pointers_of_tables_are_never_given_twice() -> None:
    """R114: not even after the class is gone."""
    seen = set()
    for _ in range(5):
        capsule = mixin_class().__dlpack_c_exchange_api__
        seen.add(capsule_pointer(capsule, b"dlpack_exchange_api"))
        del capsule
        gc.collect()
    assert len(seen) == 5
