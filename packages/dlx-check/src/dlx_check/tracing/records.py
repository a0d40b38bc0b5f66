"""What a trace lists: imports and exports that have not ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Caller", "Held", "size"]


@dataclass(frozen=True, slots=True)
class Caller:
    """One Python frame."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Return the file's own name, the line and the function."""
        name = self.file.rpartition("/")[2]
        return f"{name}:{self.line} {self.function}"


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Memory that came in or went out through dlx, and is held since."""

    kind: Literal["import", "export"]
    way: str
    """The function, or ``table``."""
    number: int
    parent: int | None
    """The number of the import whose memory an export shows, if that was traced."""
    producer: str
    consumer: str
    address: int
    shape: tuple[int, ...]
    dtype: str
    device: str
    nbytes: int
    since: int
    """Nanoseconds since 1970."""
    thread: int
    """As ``threading.get_ident`` gives it."""
    callers: tuple[Caller, ...]
    """The frames that led to it, the innermost first."""

    @property
    def age(self) -> float:
        """Seconds that it has been held."""
        return (time.time_ns() - self.since) / 1e9

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, which fit into JSON."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        callers = [[each.file, each.line, each.function] for each in self.callers]
        return fields | {"callers": callers}


def size(nbytes: int) -> str:
    """Return a number of bytes in the unit that leaves up to four digits."""
    value, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
