"""Parts of inspections (`dlx.inspect`), and what its hints say."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import dlx
import numpy as np
import pytest
from dlx_check.inspection import hints

from support.dlpack_abi import managed_in


def note(x: object, protocol: str) -> str | None:
    """Return what an inspection says of a protocol that the object has."""
    [found] = [each for each in dlx.inspect(x).protocols if each.name == protocol]
    return found.note


def tensor_of(x: object) -> Any:
    """Return the tensor of an inspection that found one."""
    tensor = dlx.inspect(x).tensor
    assert tensor is not None
    return tensor


def hint(x: object, part: str) -> str:
    """Return the hint that contains a text; a version newer than all fails."""
    module = type(x).__module__.partition(".")[0]
    known = [each for each in hints.KNOWN if each.module.partition(".")[0] == module]
    version = sys.modules[known[0].module].__version__
    oldest = min((each.oldest for each in known), key=hints._release)
    if hints._release(version) < hints._release(oldest):
        pytest.skip(f"{module} {version} is older than the hints")
    texts = [each.text for each in dlx.inspect(x).hints if part in each.text]
    assert len(texts) == 1, f"no hint of {module} {version} has {part!r}"
    return texts[0]


def can_be_written(x: Any) -> bool:
    """Write 7 over a tensor's first float32 through a capsule that has no flags."""
    capsule = x.__dlpack__()
    managed = managed_in(capsule)
    assert not hasattr(managed, "flags")
    ctypes.c_float.from_address(managed.dl_tensor.data).value = 7
    return float(np.from_dlpack(x)[0]) == 7
