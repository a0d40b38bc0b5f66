"""What an experiment saw: frozen, and JSON throughout, so it can cross processes.

Addresses, ids and versions are not in a record, so two runs give equal ones.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["UNNAMED", "Asked", "Raised", "Record", "Shown", "Struct"]


UNNAMED = "no-such-tensor: the target names none that is "
"""Why a check is untestable whose tensor `Target.tensors` has not; its kind follows."""


@dataclass(frozen=True)
class Asked:
    """One call that the target made of a probe."""

    method: str
    keywords: dict[str, Any]


@dataclass(frozen=True)
class Raised:
    """An exception of the target."""

    type: str
    bases: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class Shown:
    """What the target shows of an object that it made."""

    shape: tuple[int, ...]
    dtype: str
    values: str
    equal: bool
    writable: bool | None


@dataclass(frozen=True)
class Struct:
    """The fields of a managed tensor; those of the version are 0 without one."""

    name: str
    version: tuple[int, int]
    flags: int
    device: tuple[int, int]
    dtype: tuple[int, int, int]
    ndim: int
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    byte_offset: int
    null: tuple[str, ...]
    values: str
    equal: bool | None
    counts: str = ""
    """What its strides count in place of elements, if that is all that is wrong."""


@dataclass(frozen=True)
class Record:
    """What one experiment saw."""

    untestable: str = ""
    """Why the stimulus could not be made, if so."""
    raised: Raised | None = None
    asked: tuple[Asked, ...] = ()
    sent: tuple[str, ...] = ()
    """The names of the capsules that a probe handed out."""
    shown: Shown | None = None
    struct: Struct | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """What is particular to the experiment."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, without what is empty."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Record:
        """Read what `to_json` wrote."""
        kinds: dict[str, Any] = {"raised": Raised, "shown": Shown, "struct": Struct}
        made = dict(found)
        for name, kind in kinds.items():
            if made.get(name):
                made[name] = kind(**{k: _frozen(v) for k, v in made[name].items()})
        made["asked"] = tuple(Asked(**each) for each in made.get("asked", ()))
        made["sent"] = tuple(made.get("sent", ()))
        return cls(**made)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
