"""Which engines are installed."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest


def engine(name: str) -> Any:
    """Import an engine; if missing, skip the file, or fail in CI."""
    if os.environ.get("DLX_REQUIRE_HEAVY") == "1":
        return import_module(name)
    reason = f"{name} is not installed: `tests/tasks.py engines` installs it"
    return pytest.importorskip(name, reason=reason)
