"""The process that looks at one library, and writes what it finds as lines of JSON."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
from contextlib import suppress
from typing import Any

from .libraries import LIBRARIES
from .look import Difference, looked, wrote
from .ways import AFTER, WAYS
from .word import Word, word_of


class Child:
    """Looks at objects, and says where it is before each look."""

    def __init__(self, library: str, out: int) -> None:
        """Write to the file descriptor ``out``."""
        self.library, self.out, self.looks = LIBRARIES[library], out, 0

    def tell(self, kind: str, *values: object) -> None:
        """Write a line at once: the process may crash."""
        os.write(self.out, json.dumps([kind, *values]).encode() + b"\n")

    def at(self, way: str) -> None:
        """Say which way comes next."""
        self.tell("at", way)

    def note(self, difference: Difference | None) -> None:
        """Count a look."""
        self.looks += 1
        if difference is not None:
            self.tell("difference", *difference)

    def run(self) -> None:
        """Look at each object, and at the end publish the classes."""
        kept: list[tuple[str, Any, Word]] = []
        for name, make in self.library.objects():
            self.tell("object", name)
            try:
                x = make()
            except Exception as error:
                text = f"{type(error).__name__}: {error}".splitlines()[0]
                self.note(Difference(name, "made", text))
                continue
            self.at("word")
            word = word_of(x, self.library.immutable)
            kept.append((name, x, word))
            for difference in looked(name, x, word, WAYS, self.at):
                self.note(difference)
            for difference in wrote(name, x, word, self.at):
                self.note(difference)
        for name, x, word in kept:
            for difference in looked(name, x, word, AFTER, self.at):
                self.note(difference)
        self.tell("done", self.looks)


def main(library: str, before: str) -> None:
    """Import and look at a library, of which nothing else may print to our pipe."""
    out = os.dup(1)
    os.dup2(2, 1)
    faulthandler.enable()
    child = Child(library, out)
    # torch is what gets memory to write to; dlx asks about it if it is there.
    with suppress(ImportError):
        importlib.import_module("torch")
    try:
        child.library.load()
    except ImportError as error:
        child.tell("missing", str(error))
        return
    exec(before, {})
    child.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
