"""A library that nobody has checked before, with three faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIBRARY = """
import numpy as np

class Array:
    def __init__(self, data):
        self.data = data

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        # Drops copy=, and ignores streams.
        return self.data.__dlpack__(max_version=max_version, dl_device=dl_device)

def from_dlpack(x, /, *, device=None, copy=None):
    data = np.array(np.from_dlpack(x, copy=copy))
    if data.size:
        data.reshape(-1)[-1] = 0  # forgets the last element
    return Array(data)

def target():
    from dlx.check import Target

    return Target(
        name="tiny",
        imports="import tiny",
        make="lambda a: tiny.Array(np.array(a))",
        take="tiny.from_dlpack",
        show="lambda x: x.data.copy()",
        address="lambda x: x.data.ctypes.data",
        type="tiny.Array",
    )
"""


def test_three_planted_faults_are_named_and_reproduced(tmp_path: Path) -> None:
    """docs/check.md, A target: from an empty directory, by one command.

    Elements that are wrong (R18) are told once, and not for every layout and dtype.
    """
    (tmp_path / "tiny.py").write_text(LIBRARY)
    command = [sys.executable, "-m", "dlx", "check", "tiny:target", "--all"]
    ended = subprocess.run(
        [*command, "--repros", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    files = {path.name for path in (tmp_path / "out" / "tiny").iterdir()}
    for check in (
        "consumer.capsule.dropped",
        "producer.copy.true",
        "producer.stream.cpu.legacy",
    ):
        assert f"{check}  deviates" in ended.stdout
        assert f"{check}.py" in files
    assert "consumer.dtype.int8 " not in ended.stdout
    assert "consumer.strides.gaps" not in ended.stdout
