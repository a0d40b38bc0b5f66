"""What a row consists of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dlx_check.conformance.expect import Expectation
from dlx_check.conformance.experiments import Experiment

__all__ = [
    "CONFLICT",
    "EFFECTS",
    "MUST",
    "SHOULD",
    "Check",
    "NotCheckable",
    "of_array_api",
    "of_from_dlpack",
    "of_table",
]

MUST, SHOULD, CONFLICT = "must", "should", "conflict"

EFFECTS = (
    "wrong numbers",
    "memory freed",
    "shared after copy=True",
    "copied after copy=False",
    "written though protected",
    "crash",
    "leak",
    "refusal",
    "class of error",
    "metadata",
)
"""What a deviation does to a user, the worst first."""


@dataclass(frozen=True)
class Check:
    """One row: stimulus, expectation, and where the requirement comes from."""

    id: str
    requirements: str
    level: str
    experiment: Experiment
    expects: Expectation
    effect: str = "class of error"
    stimulus: str = "legal"
    """legal, older (legal until DLPack 1.2), or malformed."""
    facts: tuple[tuple[Expectation, str], ...] = ()
    """Where the requirement leaves a choice: which one was taken."""
    profile: str = "dlpack"
    """What a target must mean to follow: dlpack, array-api, from_dlpack, or table."""
    needs: str = ""
    """The check on which this one rests."""
    since: str = "1.3.0"

    @property
    def role(self) -> str:
        """Return the role: producer, consumer, table, streams or related."""
        return self.id.split(".", 1)[0]


of_array_api = partial(Check, profile="array-api")
"""A row for who takes keywords of `__dlpack__`."""
of_from_dlpack = partial(Check, profile="from_dlpack")
"""A row for who has the array API's `from_dlpack`."""
of_table = partial(Check, profile="table")
"""A row for who has an exchange table."""


@dataclass(frozen=True)
class NotCheckable:
    """A requirement that no row can check, and why."""

    requirements: str
    reason: str
