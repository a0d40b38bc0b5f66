"""Launch by cutile's extension on the driver of `simulation.c`, and say what happened.

    python patches/cutile-python/cutile_launch.py EXTENSION SOURCES SIMULATION

prints as JSON, for each case, the lines of the journal, and the exception, if any.
Each launch but the first also deletes what an earlier one has left.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

CUDA, CPU = 2, 1
COPIED = 2
STREAM = 0x70
"""On which is launched."""


class Finder(importlib.abc.MetaPathFinder):
    """Finds extensions where they were built."""

    def __init__(self, paths: dict[str, str]) -> None:
        """Take names, and the paths of their files."""
        self.paths = paths

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Find an extension by its name."""
        if name not in self.paths:
            return None
        loader = importlib.machinery.ExtensionFileLoader(name, self.paths[name])
        return importlib.util.spec_from_loader(name, loader)


def classes(simulation: ModuleType) -> tuple[type, ...]:
    """Make the classes of arrays: versioned, of before DLPack 1.0, and others."""

    class Array:
        def __init__(self, flags: int = 0, device: tuple[int, int] = (CUDA, 0)) -> None:
            self.flags, self.device = flags, device

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.device

        def export(self, stream: object, versioned: bool) -> object:
            simulation.journal.append(f"__dlpack__(stream={stream})")
            return simulation.capsule(versioned, self.flags, *self.device)

        def __dlpack__(self, *, stream: object = None, **keywords: object) -> object:
            return self.export(stream, "max_version" in keywords)

    class Old(Array):
        def __dlpack__(self, *, stream: object = None) -> object:  # type: ignore[override]
            return self.export(stream, False)

    class Wrapped(Array):
        def __dlpack__(self, **keywords: Any) -> object:
            return Old(self.flags).__dlpack__(**keywords)

    class Lends(Array):
        __dlpack_c_exchange_api__ = simulation.table

    return Array, Old, Wrapped, Lends


def cases(
    simulation: ModuleType, launch: Callable[..., None]
) -> Iterator[tuple[str, str]]:
    """Launch, and give what happened."""
    Array, Old, Wrapped, Lends = classes(simulation)
    cuda1 = (CUDA, 1)

    @contextmanager
    def capture() -> Iterator[None]:
        simulation.capture(True)
        yield
        simulation.capture(False)

    def happened(array: object) -> str:
        try:
            launch(STREAM, array)
        except Exception as error:
            simulation.journal.append(f"{type(error).__name__}: {error}")
        lines = list(simulation.journal)
        simulation.finish()
        simulation.journal.clear()
        return "; ".join(lines)

    yield "an array", happened(Array())
    yield "the next launch", happened(Array())
    yield "an array of before DLPack 1.0", happened(Old())
    yield "one that wraps such an array", happened(Wrapped())
    yield "an array whose library lends it, on another stream", happened(Lends())
    yield "host memory", happened(Array(device=(CPU, 0)))
    yield "another device", happened(Array(device=cuda1))
    yield "an object that is no array", happened(object())
    simulation.fail_launch()
    yield "a launch that fails", happened(Array())
    with capture():
        yield "a graph", happened(Array())
        yield "a graph, and a copy", happened(Array(COPIED))
        yield "a graph, and what may be a copy", happened(Old())


def launcher(extension: ModuleType) -> Callable[..., None]:
    """Return what launches a kernel of one argument that `tileiras` never saw."""
    leaf = SimpleNamespace(
        KIND="leaf", constant=False, scalar=None, array=None, list=None
    )

    class Kernel(extension.TileDispatcher):  # type: ignore[name-defined,misc]
        def _compile(self, *_: object) -> tuple[bytes, str, None, list[object]]:
            return b"cubin", "kernel", None, []

    kernel = Kernel((leaf,))

    def launch(stream: int, *arrays: object) -> None:
        extension.launch(stream, (1,), kernel, arrays)

    return launch


def main(extension: str, sources: str, simulation: str) -> None:
    """Import all of it, and print the cases."""
    name = "cuda.tile._cext"
    sys.meta_path.insert(0, Finder({name: extension, "simulation": simulation}))
    sys.path.insert(0, sources)
    driver = importlib.import_module("simulation")
    sys.modules["cuda.tile._load_libcuda"] = driver
    importlib.import_module("cuda.tile")
    launch = launcher(importlib.import_module(name))
    print(json.dumps(dict(cases(driver, launch))))


if __name__ == "__main__":
    main(*sys.argv[1:])
