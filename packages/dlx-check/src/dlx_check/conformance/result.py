"""The result of one check; `results` has those of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["FAILED", "RESULTS", "STRIDES", "WRITES", "Result", "known"]

RESULTS = (
    "meets",
    "deviates",
    "crashes",
    "hangs",
    "untestable",
    "fact",
    "error",
)
"""What a result can be; `error` is a fault of the suite, not of the target."""

FAILED = ("deviates", "crashes", "hangs")
"""What is not as required."""

STRIDES = "strides count "
"""How the sentence begins that tells of strides: elements are wrong only by them."""

WRITES = "writes to the memory that it imports"
"""What is said of a consumer whose elements are wrong because it has changed them."""


@dataclass(frozen=True)
class Result:
    """What one check found."""

    check: str
    """Its name, `role.what.detail`."""
    role: str
    """producer, consumer, table, streams or related."""
    requirements: tuple[str, ...]
    """R-numbers of requirements.tsv; never shown alone."""
    source: str
    """What requires it, in words: "array API, `from_dlpack`"."""
    statement: str
    """The first requirement's text."""
    expected: str
    """What the check asks for."""
    level: str
    """must, should, or conflict (the sources disagree)."""
    derived: bool
    """Whether the requirement is dlx's reading of its sources."""
    stimulus: str
    """legal, older, or malformed ("robustness": not counted)."""
    effect: str
    """What a deviation does to a user; one of `suite.row.EFFECTS`."""
    result: str
    """One of `RESULTS`."""
    text: str
    """One sentence: what was seen, or why it cannot be tested."""
    record: dict[str, Any]
    """What was seen, as JSON."""
    confirmed: str = ""
    """How what is not as required was confirmed: "alone" (again in a fresh process),
    "reproduced" (the reproduction ended as it says), or "unconfirmed" (it did not)."""
    only_after: bool = False
    """Whether the result was another among other checks; the lone one counts."""
    like_numpy: bool = False
    """Whether NumPy, of the version in the header, does the same: its result of this
    check, in a run beside this one, has the same words."""
    reproduction: str = ""
    """A program of the target, NumPy and ctypes, which ends with an `AssertionError`,
    or as the target ends it, while the deviation is there."""

    no_reproduction: str = ""
    """Why there is none of a deviation that was confirmed "alone"."""

    @property
    def failed(self) -> bool:
        """Return whether it is not as required, by a legal or older stimulus."""
        return (
            self.result in FAILED
            and self.stimulus != "malformed"
            and self.confirmed != "unconfirmed"
        )

    @property
    def fails_run(self) -> bool:
        """Return whether a run fails by it: a MUST, or numbers or memory at stake."""
        grave = self.effect in ("wrong numbers", "memory freed")
        return self.failed and (self.level == "must" or grave)

    def to_json(self) -> dict[str, Any]:
        """Return the line of a report."""
        return {"kind": "result", **asdict(self)}

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Result:
        """Read a line of a report; fields that are not known are left out."""
        values = known(cls, line)
        values["requirements"] = tuple(map(str, values["requirements"]))
        if values["result"] not in RESULTS:
            raise TypeError(f"no result is called {values['result']}")
        return cls(**values)


_KINDS = {
    "str": str,
    "bool": bool,
    "int": int,
    "tuple[str, ...]": list,
    "dict[str, Any]": dict,
}


def known(cls: type[Any], line: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a class in a line; raise `TypeError` if one is otherwise.

    What has a default may be left out, so that older reports can be read.
    """
    found = {each.name: each for each in fields(cls) if each.name in line}
    for name, each in found.items():
        if not isinstance(line[name], _KINDS.get(str(each.type), object)):
            raise TypeError(f"{name} is a {type(line[name]).__name__}")
    return {name: line[name] for name in found}
