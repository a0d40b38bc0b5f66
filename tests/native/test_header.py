"""Tests of dlpack_exchange.h, by the example extension `image`; streams are in test_streams.py."""

import ctypes
import gc
import sys
import threading
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import torch

TABLE = "__dlpack_c_exchange_api__"


def address(image, x):
    return image.look(x)[0]


def test_a_replaced_table_is_noticed(image):
    class Own(torch.Tensor):
        pass

    x = torch.ones(3).as_subclass(Own)
    assert address(image, x) == x.data_ptr()
    own = type(image.import_like(np.ones(3), None))
    setattr(Own, TABLE, getattr(own, TABLE))  # the table of another class: refuses x
    with pytest.raises(TypeError, match="the table is of"):
        image.look(x)
    delattr(Own, TABLE)
    assert address(image, x) == x.data_ptr()


def test_a_class_that_overrides_dlpack_is_asked(image):
    class Refuses(torch.Tensor):
        def __dlpack__(self, **_):
            raise BufferError("no")

    with pytest.raises(BufferError, match="^no$"):
        image.look(torch.ones(3).as_subclass(Refuses))


def test_classes_come_and_go(image):
    # Addresses of dead classes are used again, by classes with and without a table.
    for i in range(3000):
        base = torch.Tensor if i % 2 else np.ndarray
        own = type("Own", (base,), {})
        x = torch.ones(i % 5 + 1).as_subclass(own) if i % 2 else np.ones(i % 5 + 1).view(own)
        assert image.look(x)[1] == (i % 5 + 1,)
        del own, x
        if i % 100 == 0:
            gc.collect()


@pytest.mark.parametrize("x", [torch.ones(3, 4), np.ones((3, 4), "f"), torch.zeros((1,) * 12)], ids=repr)
def test_nothing_leaks(image, x):
    def once():
        image.take(x, x, x)
        image.take_writable(x)
        image.import_like(x, None)
        image.import_like(x, x)
        for bad in ([x, 1], [1], [x, torch.ones(3, dtype=torch.complex64).conj()]):
            try:
                image.take(*bad)
            except (TypeError, BufferError):
                continue
            raise AssertionError(bad)

    count = sys.getrefcount(x)
    tracemalloc.start()
    sizes = []
    for _ in range(5):  # the first round fills caches
        for _ in range(1000):
            once()
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    # A leak of a byte a call shows in every round; noise does not.
    assert min(after - before for before, after in pairwise(sizes)) < 1000
    assert sys.getrefcount(x) == count


def test_a_retry_only_for_the_signature(image):
    calls = []

    class Old:
        def __dlpack__(self, stream=None):
            calls.append("old")
            return np.ones(3).__dlpack__()

    class Wrapped(Old):
        def __dlpack__(self, *args, **keywords):
            calls.append(tuple(keywords))
            return super().__dlpack__(*args, **keywords)

    class Broken:
        def __dlpack__(self, **keywords):
            calls.append(tuple(keywords))
            return len(3)

    assert image.look(Old())[-1] == 1
    assert image.look(Wrapped())[-1] == 1
    assert calls == ["old", ("max_version",), (), "old"]
    with pytest.raises(TypeError, match="has no len"):
        image.look(Broken())
    assert calls[4:] == [("max_version",)]


def test_a_failing_to_py_deletes_once(image):
    x = image.image(np.ones((2, 3), "u1"))
    source = np.ones(3, "f")
    count = sys.getrefcount(source)
    for _ in range(100):
        with pytest.raises(BufferError, match="an Image is of"):
            image.import_like(source, x)
    assert sys.getrefcount(source) == count


def test_the_deleter_runs_in_any_thread(image):
    x = np.ones(3)
    count = sys.getrefcount(x)
    objects = [image.import_like(x, None) for _ in range(100)]
    capsules = [o.__dlpack__(max_version=(1, 3)) for o in objects]
    del objects
    thread = threading.Thread(target=capsules.clear)
    thread.start()
    thread.join()
    assert sys.getrefcount(x) == count


def test_a_pending_exception_survives(image):
    def generate():
        capsule = image.import_like(np.ones(3), None).__dlpack__()
        raise KeyError(capsule is None)

    with pytest.raises(KeyError):
        generate()


def test_threads(image):
    arrays = [torch.ones(n, 4) for n in range(1, 9)] + [np.ones((n, 4), "f") for n in range(1, 9)]
    wrong = []

    def work():
        for _ in range(2000):
            for x in arrays:
                if image.look(x)[1] != tuple(x.shape):
                    wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: torch.ones(3, dtype=torch.complex64).conj(), BufferError, "lazily conjugated"),
        (lambda: torch.ones(3, dtype=torch.complex64).conj().imag, BufferError, "lazily negated"),
        (lambda: torch.sparse_coo_tensor([[0]], [1.0], (2,), check_invariants=True), BufferError, "strided"),
        (lambda: torch.empty(3, device="meta"), BufferError, "meta"),
        (lambda: [1], TypeError, "expected is a tensor"),
        (lambda: np.array(["a"]), BufferError, "DLPack only"),
        (lambda: np.zeros(3, ">f4"), BufferError, "native byte order"),
    ],
)
def test_refused(image, make, error, text):
    with pytest.raises(error, match=text):
        image.look(make())


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(10_000, 4)


@pytest.mark.parametrize("rows", [0, 1, 5000])
def test_a_fake_tensor_has_no_memory(image, rows):
    with pytest.raises(BufferError, match="no memory"):
        image.look(fake()[rows:])


def test_copies_and_read_only(image):
    a = np.arange(6, dtype="u1").reshape(2, 3)[:, ::-1]
    o = image.import_like(a, None)
    b = np.from_dlpack(o, copy=True)
    assert b.tolist() == a.tolist() and not np.shares_memory(a, b)
    a = a.copy()
    a.setflags(write=False)
    o = image.import_like(a, None)
    assert not np.from_dlpack(o).flags.writeable
    with pytest.raises(BufferError, match="max_version"):
        o.__dlpack__()
    with pytest.raises(BufferError, match="read-only"):
        image.look(o, 1)
