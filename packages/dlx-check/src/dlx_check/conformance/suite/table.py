"""Rows for the exchange table of a library's type."""

from __future__ import annotations

from dlx_check.conformance.calling import (
    Allocate,
    Borrow,
    FromObject,
    Protocol,
    Refusals,
    Stream,
    Table,
    ToObject,
)
from dlx_check.conformance.expect import (
    Expectation,
    all_of,
    deleted_once,
    either,
    equal,
    expected,
    no_references,
    note,
)
from dlx_check.conformance.probe import Tensor
from dlx_check.conformance.records import Record
from dlx_check.conformance.structs import READ_ONLY, DLPackExchangeAPI
from dlx_check.conformance.suite.producer import field, readable
from dlx_check.conformance.suite.row import CONFLICT, MUST, SHOULD, Check, of_table

__all__ = ["TABLE"]

succeeds = expected(
    "the function returns 0 and leaves no exception",
    lambda r: r.notes.get("code") == 0 and not r.notes.get("left"),
    "fails, or leaves an exception behind a success",
)


def _fails(record: Record) -> str | None:
    if record.notes["code"] == 0:
        return "returns 0"
    if not record.notes["left"]:
        return f"returns {record.notes['code']} without an exception"
    return None


fails = Expectation("the function returns -1 and leaves an exception", _fails)


def noted(name: str, value: object, text: str, says: str) -> Expectation:
    """Ask for a value of a note that has to be there."""
    return expected(text, lambda r: r.notes.get(name) == value, says)


def has_null(names: tuple[str, ...]) -> Expectation:
    """Ask that none of these functions is NULL."""

    def wrong(record: Record) -> str | None:
        found = [name for name in names if name in record.notes.get("null", ())]
        return f"{', '.join(found)} is NULL" if found else None

    return Expectation("no function that must be there is NULL", wrong)


ENTRIES = DLPackExchangeAPI.ENTRIES
MUST_BE = tuple(name for name in ENTRIES if not name.startswith("dltensor"))


def _exported(record: Record) -> str | None:
    said = [
        kind
        for kind, found in record.notes["kinds"].items()
        if found["code"] == 0 and found["__dlpack__"]
    ]
    return f"exports {', '.join(said)}; __dlpack__ refuses" if said else None


def _silent(record: Record) -> str | None:
    for kind, found in record.notes["kinds"].items():
        if found["code"] and not found["left"]:
            return f"returns {found['code']} without an exception for {kind}"
        if not found["code"] and found["left"]:
            return f"returns 0 and leaves {found['left'][0]} for {kind}"
    return None


def _other(record: Record) -> str | None:
    said = [
        f"{found['left'][0]} for {kind}"
        for kind, found in record.notes["kinds"].items()
        if found["left"] and "BufferError" not in found["left"]
    ]
    return f"raises {', '.join(said)}" if said else None


def _lacks(record: Record) -> str | None:
    said = " and ".join(record.notes["missing"])
    return f"has no {said}: NumPy and torch cannot read it" if said else None


_refuses = Expectation("it refuses what __dlpack__ refuses", _exported)
_says_so = Expectation("each failure leaves an exception, and no success does", _silent)

_FOUND = (
    Check(
        "table.protocol",
        "R116",
        MUST,
        Protocol(),
        Expectation(
            "who has a table has __dlpack__ and __dlpack_device__, too", _lacks
        ),
        "refusal",
    ),
    of_table(
        "table.attribute",
        "R112",
        MUST,
        Table(),
        noted(
            "found by instances",
            True,
            "the type of its tensors has the table",
            "the type of its tensors has another table, or none",
        ),
        "refusal",
    ),
    of_table(
        "table.capsule.name",
        "R113",
        MUST,
        Table(),
        noted(
            "name",
            "dlpack_exchange_api",
            "it is a capsule `dlpack_exchange_api`",
            "it is no such capsule",
        ),
        "refusal",
    ),
    of_table(
        "table.static",
        "R114",
        MUST,
        Table(),
        all_of(
            note("same", True, "each lookup gives one address", "addresses differ"),
            note("unchanged", True, "the table does not change", "the table changes"),
        ),
        "memory freed",
    ),
    of_table(
        "table.capsule.destructor",
        "R115",
        MUST,
        Table(),
        note("destructor", False, "it has no destructor", "it has a destructor"),
        "memory freed",
    ),
    of_table(
        "table.older",
        "R120",
        MUST,
        Table(),
        expected(
            "prev_api is NULL, or an older table",
            lambda r: (
                (older := r.notes.get("older", [])) == sorted(older, reverse=True)
                and all(each < r.notes["version"] for each in older)
            ),
            "prev_api leads to a table that is not older",
        ),
        "crash",
    ),
    of_table("table.functions", "R121", MUST, Table(), has_null(MUST_BE), "crash"),
    of_table(
        "table.borrows",
        "R122",
        SHOULD,
        Table(),
        noted("name", "dlpack_exchange_api", "there is a table", "no table"),
        "metadata",
        facts=(
            (has_null(ENTRIES), "lends views"),
            (has_null(MUST_BE), "lends no views"),
        ),
    ),
)

_FROM = (
    of_table("table.from.succeeds", "R123", MUST, FromObject(), succeeds, "crash"),
    of_table(
        "table.from.elements", "R128", MUST, FromObject(), readable, "wrong numbers"
    ),
    of_table(
        "table.from.as-dlpack",
        "R128",
        MUST,
        FromObject(),
        Expectation(
            "the fields are those of __dlpack__",
            lambda r: (
                f"differs in {', '.join(r.notes['as __dlpack__'])}"
                if r.notes.get("as __dlpack__")
                else None
            ),
        ),
        "wrong numbers",
    ),
    of_table(
        "table.from.references", "R128", SHOULD, FromObject(), no_references, "leak"
    ),
    of_table(
        "table.from.another-type",
        "R127 R123",
        MUST,
        FromObject("another"),
        fails,
        "crash",
    ),
    of_table(
        "table.from.threads",
        "R145",
        MUST,
        FromObject("threads"),
        noted("wrong on threads", 0, "each call is right", "calls fail"),
        "wrong numbers",
    ),
    of_table("table.from.refuses", "R125", MUST, Refusals(), _refuses, "wrong numbers"),
    of_table(
        "table.from.null-data",
        "R111",
        MUST,
        Refusals(),
        expected(
            "elements have an address",
            lambda r: not any(f["NULL data"] for f in r.notes["kinds"].values()),
            "exports elements with NULL data",
        ),
        "crash",
    ),
    of_table(
        "table.from.refuses.exception", "R123", MUST, Refusals(), _says_so, "crash"
    ),
    of_table(
        "table.from.refuses.error",
        "R124",
        SHOULD,
        Refusals(),
        Expectation("BufferError is left", _other),
        "class of error",
    ),
)

_BORROW = (
    of_table(
        "table.borrow.elements",
        "R129",
        MUST,
        Borrow(),
        all_of(succeeds, readable, field("its shape is right", "shape", (2, 3))),
        "wrong numbers",
    ),
    of_table("table.borrow.references", "R129", MUST, Borrow(), no_references, "leak"),
    of_table(
        "table.borrow.another-type",
        "R127 R123",
        MUST,
        Borrow(),
        expected(
            "another type is refused with an exception",
            lambda r: r.notes["another"][0] != 0 and r.notes["another"][1],
            "takes another type, or fails without an exception",
        ),
        "crash",
    ),
    of_table(
        "table.borrow.refuses",
        "R125",
        MUST,
        Refusals("dltensor_from_py_object_no_sync"),
        _refuses,
        "wrong numbers",
    ),
    of_table(
        "table.borrow.refuses.exception",
        "R123",
        MUST,
        Refusals("dltensor_from_py_object_no_sync"),
        _says_so,
        "crash",
    ),
)

_at_most_once = expected(
    "a failure deletes at most once",
    lambda r: r.notes["code"] == 0 or r.notes["deleted"][0] < 2,
    "deletes more than once",
)
_LEFT = (
    (succeeds, "takes what it cannot know"),
    (noted("deleted", [0], "", ""), "leaves the tensor to the caller"),
    (noted("deleted", [1], "", ""), "deletes the tensor when it fails"),
)

_TO = (
    of_table(
        "table.to.object",
        "R130",
        MUST,
        ToObject(),
        all_of(succeeds, noted("right type", True, "it has the type", "another type")),
        "crash",
    ),
    of_table("table.to.elements", "R130", MUST, ToObject(), equal, "wrong numbers"),
    of_table(
        "table.to.steals",
        "R130",
        MUST,
        ToObject(),
        all_of(
            deleted_once,
            note(
                "deleted while alive",
                [0],
                "it holds the tensor",
                "deletes the tensor at once",
            ),
        ),
        "memory freed",
    ),
    of_table(
        "table.to.references",
        "R130",
        MUST,
        ToObject(),
        expected(
            "it returns one new reference",
            lambda r: r.notes.get("references", 1) == 1,
            "returns an object with other references",
        ),
        "leak",
    ),
    of_table(
        "table.to.failure",
        "R131",
        CONFLICT,
        ToObject(Tensor(dtype=(99, 32, 1))),
        _at_most_once,
        "memory freed",
        facts=_LEFT,
    ),
    *(
        of_table(
            f"table.to.failure.exception.{name}",
            "R123",
            MUST,
            ToObject(tensor),
            either(noted("code", 0, "it succeeds", ""), fails),
            "crash",
        )
        for name, tensor in (
            ("dtype", Tensor(dtype=(99, 32, 1))),
            ("device", Tensor(device=(99, 0))),
        )
    ),
    of_table(
        "table.to.failure.device",
        "R131",
        CONFLICT,
        ToObject(Tensor(device=(99, 0))),
        _at_most_once,
        "memory freed",
        facts=_LEFT,
    ),
    of_table(
        "table.to.major.newer",
        "R132",
        MUST,
        ToObject(Tensor(version=(2, 0))),
        fails,
        "wrong numbers",
    ),
    of_table(
        "table.to.major.newer.untouched",
        "R132 R29",
        MUST,
        ToObject(Tensor(version=(2, 0), wild=True)),
        fails,
        "crash",
    ),
    of_table(
        "table.to.read-only",
        "R133",
        MUST,
        ToObject(Tensor(flags=READ_ONLY)),
        expected(
            "what is made is read-only",
            lambda r: r.shown is None or r.shown.writable is not True,
            "what is made says that it may be written",
        ),
        "written though protected",
        facts=(
            (
                expected("", lambda r: r.shown is None or r.shown.writable is None, ""),
                "imports no READ_ONLY",
            ),
        ),
    ),
)

_ALLOCATE = (
    of_table(
        "table.allocator.prototype",
        "R134 R136",
        MUST,
        Allocate(),
        expected("it reads four fields", lambda r: "code" in r.notes, ""),
        "crash",
    ),
    of_table(
        "table.allocator.result",
        "R138",
        MUST,
        Allocate(),
        all_of(
            field("the shape is that of the prototype", "shape", (2, 3)),
            field("strides are set", "strides", (3, 1)),
            field("the dtype is that of the prototype", "dtype", (2, 32, 1)),
            field("the device is that of the prototype", "device", (1, 0)),
            field("data and deleter are set", "null", ()),
        ),
        "crash",
    ),
    of_table(
        "table.allocator.quiet",
        "R135",
        MUST,
        Allocate(),
        expected(
            "a success reports no error",
            lambda r: r.notes["code"] != 0 or r.notes["errors"] == 0,
            "reports an error",
        ),
        "class of error",
    ),
    of_table(
        "table.allocator.reports",
        "R135",
        MUST,
        Allocate(device=(99, 0)),
        either(
            noted("code", 0, "it allocates", "returns a code"),
            noted("errors", 1, "it reports one error", "reports other than one error"),
        ),
        "class of error",
    ),
    of_table(
        "table.allocator.no-report",
        "R137",
        SHOULD,
        Allocate(reports=False),
        expected("it needs no SetError", lambda r: "code" in r.notes, ""),
        "crash",
    ),
    of_table(
        "table.stream.cpu",
        "R139",
        MUST,
        Stream(),
        all_of(
            succeeds, noted("stream", 0, "the stream is NULL", "names another stream")
        ),
        "metadata",
    ),
)

TABLE = (*_FOUND, *_FROM, *_BORROW, *_TO, *_ALLOCATE)
"""All of them."""
