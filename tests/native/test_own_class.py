"""A class of `dlpack_exchange_producer.h`, and the one that `dlx_object` makes."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from support.dlpack_abi import capsule_name, managed_in, table_of


def tensor(image: Any, *, read_only: bool = False) -> Any:
    """Make an object with a table over six bytes."""
    x = np.arange(6, dtype="u1").reshape(2, 3)
    x.setflags(write=not read_only)
    return image.import_like(x, None)


def test_keywords_say_which_capsule_is_made(image: Any) -> None:
    """R1, R20, R27: None and (0, x) are unversioned."""
    x = tensor(image)
    for version in (None, (0, 8)):
        assert capsule_name(x.__dlpack__(max_version=version)) == b"dltensor"
    for version in ((1, 0), (1, 3), (2, 0)):
        capsule = x.__dlpack__(max_version=version)
        assert capsule_name(capsule) == b"dltensor_versioned"
        found = managed_in(capsule).version
        assert (found.major, found.minor) == (1, 3)
    assert x.__dlpack_device__() == (1, 0)


def test_arguments_are_keywords(image: Any) -> None:
    """R19."""
    with pytest.raises(TypeError, match="takes keywords only"):
        tensor(image).__dlpack__(None)
    with pytest.raises(TypeError, match="unexpected keyword argument 'device'"):
        tensor(image).__dlpack__(device=(1, 0))


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"max_version": 1}, TypeError, "max_version is 1, expected is None or a pair"),
        (
            {"dl_device": (1,)},
            TypeError,
            "dl_device is .1,., expected is None or a pair",
        ),
        (
            {"dl_device": (2, 0)},
            BufferError,
            r"on device \(1, 0\), and not moved to \(2",
        ),
        ({"stream": 1}, BufferError, "stream=1 means nothing on this device"),
        ({"stream": -2}, BufferError, "stream=-2 means nothing"),
        ({"stream": True}, TypeError, "stream is True"),
    ],
)
def test_what_cannot_be_done_is_refused(
    image: Any, keywords: dict[str, Any], error: type[Exception], text: str
) -> None:
    """R47, R70, R78."""
    with pytest.raises(error, match=text):
        tensor(image).__dlpack__(**keywords)


def test_a_stream_of_minus_one_is_taken(image: Any) -> None:
    """R71, R79."""
    assert tensor(image).__dlpack__(stream=-1, dl_device=(1, 0), copy=False)


def test_read_only_memory_is_exported_with_its_flag(image: Any) -> None:
    """R39, R40: or not at all."""
    x = tensor(image, read_only=True)
    assert not np.from_dlpack(x).flags.writeable
    with pytest.raises(BufferError, match=r"pass max_version=\(1, 3\)"):
        x.__dlpack__()


def test_a_copy_is_the_consumers_alone(image: Any) -> None:
    """R38, R50: in row-major order."""
    a = np.arange(6, dtype="u1").reshape(2, 3)[:, ::-1]
    x = image.import_like(a, None)
    copy = np.from_dlpack(x, copy=True)
    assert copy.tolist() == a.tolist()
    assert not np.shares_memory(a, copy)
    assert managed_in(x.__dlpack__(max_version=(1, 3), copy=True)).flags == 2
    assert managed_in(x.__dlpack__(max_version=(1, 3))).flags == 0


def test_an_empty_tensor_has_no_address(image: Any) -> None:
    """R93."""
    x = image.import_like(np.ones((0, 3)), None)
    for copy in (False, True):
        capsule = x.__dlpack__(max_version=(1, 3), copy=copy)
        assert managed_in(capsule).dl_tensor.data is None


def test_the_table_has_all_entries(image: Any) -> None:
    """R113, R114, R120: at one address."""
    x = tensor(image)
    table = table_of(x)
    assert (table.header.version.major, table.header.version.minor) == (1, 3)
    assert all(getattr(table, name) for name, _ in table._fields_[1:])
    assert (
        image.Image.__dlpack_c_exchange_api__ is image.Image.__dlpack_c_exchange_api__
    )


def test_the_table_refuses_other_types(image: Any) -> None:
    """R123."""

    class Other:
        __dlpack_c_exchange_api__ = image.Image.__dlpack_c_exchange_api__

    with pytest.raises(TypeError, match=r"the table is of <class 'image.Image'>"):
        image.look(Other())


def test_the_deleter_runs_in_any_thread(image: Any) -> None:
    """R13."""
    x = np.ones(3)
    count = sys.getrefcount(x)
    capsules = [
        image.import_like(x, None).__dlpack__(max_version=(1, 3)) for _ in range(100)
    ]
    assert sys.getrefcount(x) == count + 100
    thread = threading.Thread(target=capsules.clear)
    thread.start()
    thread.join()
    assert sys.getrefcount(x) == count


def test_a_capsule_dies_while_an_exception_is_pending(image: Any) -> None:
    """R5."""

    def fail() -> None:
        capsule = tensor(image).__dlpack__()
        raise KeyError(capsule is None)

    with pytest.raises(KeyError, match="False"):
        fail()


PROGRAM = """
import numpy as np
from support.extensions import extension
from native.conftest import BUILDS
for flags in BUILDS.values():
    image = extension("image", *flags)
    made = image.import_like(np.ones(3), None)
    np.kept = getattr(np, "kept", []) + [np.from_dlpack(made), made.__dlpack__(), made]
"""


def test_exports_outlive_the_interpreter() -> None:
    """R14: what is still exported at the end is leaked."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": "tests", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_copy_that_fits_nowhere_is_a_memory_error(image: Any) -> None:
    """R47, R63: one byte that is repeated is small, and its copy is not."""
    x = image.import_like(np.broadcast_to(np.uint8(1), (1 << 29, 1 << 28)), None)
    with pytest.raises(MemoryError):
        x.__dlpack__(copy=True)
