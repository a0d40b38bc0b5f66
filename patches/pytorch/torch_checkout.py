"""Make the commit in a checkout of PyTorch, and write it as `git format-patch` does.

    python patches/pytorch/torch_checkout.py CHECKOUT

The commit is `message.txt`, the files in `new`, and the edits below. These go by name,
and hold no line of PyTorch's: a checkout in which a name is not found once is left as
it was. The names are those of 2.15.0 (d0f2af8b66b2), as the symbols of its
libtorch_python.so have them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEW = HERE / "new"
HEADER = "torch/csrc/utils/dlpack_exchange.h"
SUITE = "test/test_dlpack_exchange.py"
STRUCTS = {"TorchDLPackExchangeAPI": "false", "TorchConstDLPackExchangeAPI": "true"}
"""The tables, and whether what they export is read-only."""
FUNCTIONS = {
    "DLTensorFromPyObjectNoSync": "dltensor_from_py_object_no_sync",
    "ManagedTensorFromPyObjectNoSync": "managed_tensor_from_py_object_no_sync",
}
"""The functions of both, and the templates that replace their bodies."""
COLUMNS = 80
"""Where torch's clang-format breaks a line."""
NEGATIVE = """\
if self.is_neg() and not copy:
    raise BufferError(
        "Can't export tensors with the negative bit set, use tensor.resolve_neg()"
    )
"""


def only(pattern: str, text: str) -> re.Match[str]:
    """Return where a pattern matches; `ValueError` unless it does so once."""
    found = list(re.finditer(pattern, text, re.M))
    if len(found) != 1:
        raise ValueError(f"{len(found)} matches of {pattern}, expected is 1")
    return found[0]


def closing(text: str, start: int) -> int:
    """Return where the brace is closed that opens before `start`."""
    depth = 1
    for brace in re.finditer("[{}]", text[start:]):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return start + brace.start()
    raise ValueError("a brace is not closed")


def included(text: str) -> str:
    """Include the new header, in the order of the alphabet."""
    name = Path(HEADER).name
    for line in re.finditer(r"^#include <torch/csrc/utils/(.+)>\n", text, re.M):
        if line[1] > name:
            return f"{text[: line.start()]}#include <{HEADER}>\n{text[line.start() :]}"
    raise ValueError("no header of torch/csrc/utils is included")


def module(text: str) -> str:
    """Edit `torch/csrc/Module.cpp`: the functions call those of the header."""
    for struct, read_only in STRUCTS.items():
        first = only(rf"^struct {struct}\b[^;{{]*{{", text).end()
        last = closing(text, first)
        body = text[first:last]
        for name, template in FUNCTIONS.items():
            head = only(rf"\b{name}\(\s*void\* (\w+),[^()]*\b(\w+)\) {{", body)
            call = f"    return torch::utils::{template}<{read_only}>("
            arguments = f"{head[1]}, {head[2]});"
            if len(call + arguments) > COLUMNS:
                call += "\n        "
            end = closing(body, head.end())
            body = f"{body[: head.end()]}\n{call}{arguments}\n  {body[end:]}"
        text = text[:first] + body + text[last:]
    return included(text)


def tensor(text: str) -> str:
    """Edit `torch/_tensor.py`: `__dlpack__` refuses what is negated."""
    line = only(r"^( +)    raise BufferError\(.*with the conjugate bit set.*\n", text)
    check = re.sub("^", line[1], NEGATIVE.rstrip("\n"), flags=re.M)
    return f"{text[: line.end()]}{check}\n{text[line.end() :]}"


EDITS: dict[str, Callable[[str], str]] = {
    "torch/csrc/Module.cpp": module,
    "torch/_tensor.py": tensor,
}


def commit(checkout: Path) -> Path:
    """Make the commit, and return the file that `git format-patch` wrote."""

    def git(*command: str | Path) -> str:
        whole = ["git", "-C", str(checkout), *map(str, command)]
        ran = subprocess.run(whole, check=True, stdout=subprocess.PIPE, text=True)
        return ran.stdout.strip()

    files = {name: edit((checkout / name).read_text()) for name, edit in EDITS.items()}
    files |= {name: (NEW / name).read_text() for name in (HEADER, SUITE)}
    for name, text in files.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    git("add", *files)
    git("commit", "--quiet", f"--file={HERE / 'message.txt'}", "--", *files)
    return checkout / git("format-patch", "-1")


if __name__ == "__main__":
    print(commit(Path(sys.argv[1])))
