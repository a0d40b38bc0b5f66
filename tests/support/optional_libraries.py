"""Libraries that `make ci` installs and `make test` does not."""

import importlib
import os
from types import ModuleType
from typing import Any

import pytest


def requires(name: str) -> ModuleType:
    """Return the module ``name``; if missing, skip, or fail in CI."""
    if os.environ.get("DLX_REQUIRE_HEAVY") == "1":
        return importlib.import_module(name)
    library = name.partition(".")[0].replace("cuda", "cuda-core")
    reason = f"{library} is not installed: `make heavy` installs it"
    module: ModuleType = pytest.importorskip(name, reason=reason)
    return module


def take_view(x: Any) -> Any:
    """Import into cuda.core: `StridedMemoryView.from_dlpack`, unsynchronized."""
    view = requires("cuda.core.utils").StridedMemoryView
    return view.from_dlpack(x, stream_ptr=-1)
