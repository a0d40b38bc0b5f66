"""Libraries that `make test` does not install, and `make ci` does."""

import importlib
import os
from types import ModuleType
from typing import Any

import pytest


def requires(name: str) -> ModuleType:
    """Return the module ``name``; skip where it is missing, fail where CI has it."""
    if os.environ.get("DLX_REQUIRE_HEAVY") == "1":
        return importlib.import_module(name)
    library = name.partition(".")[0].replace("cuda", "cuda-core")
    reason = f"{library} is not installed: `make heavy` installs it"
    module: ModuleType = pytest.importorskip(name, reason=reason)
    return module


def take_view(x: Any) -> Any:
    """Import into cuda.core: `StridedMemoryView.from_dlpack`, without order."""
    view = requires("cuda.core.utils").StridedMemoryView
    return view.from_dlpack(x, stream_ptr=-1)
