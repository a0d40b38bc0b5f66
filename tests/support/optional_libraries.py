"""Libraries that `make ci` installs and `make test` does not."""

import importlib
import importlib.util
import os
from types import ModuleType
from typing import Any, NoReturn

import pytest


def requires(name: str) -> ModuleType:
    """Return the module ``name``; if missing, skip, or fail in CI."""
    if os.environ.get("DLX_REQUIRE_HEAVY") == "1":
        return importlib.import_module(name)
    library = name.partition(".")[0].replace("cuda", "cuda-core")
    reason = f"{library} is not installed: `make .venv/heavy` installs it"
    module: ModuleType = pytest.importorskip(name, reason=reason)
    return module


def needs(name: str) -> None:
    """Skip if the module ``name`` cannot be found, or fail in CI; do not import it."""
    library = name.partition(".")[0]
    if importlib.util.find_spec(library) is None:
        missing(library)


def missing(library: str, by: str = "tests/tasks.py interop") -> NoReturn:
    """Skip for want of a library, which ``by`` installs, or fail in CI."""
    reason = f"{library} is not installed: `{by}` installs it"
    if os.environ.get("DLX_REQUIRE_HEAVY") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def take_view(x: Any) -> Any:
    """Import into cuda.core: `StridedMemoryView.from_dlpack`, unsynchronized."""
    view = requires("cuda.core.utils").StridedMemoryView
    return view.from_dlpack(x, stream_ptr=-1)
