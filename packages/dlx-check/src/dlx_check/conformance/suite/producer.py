"""Rows for what a library exports by `__dlpack__`."""

from __future__ import annotations

from collections.abc import Callable

from dlx_check.conformance.expect import (
    Expectation,
    all_of,
    deleted,
    either,
    expected,
    no_references,
    note,
    raising,
    refused,
    shares,
)
from dlx_check.conformance.exporting import Export, Kinds, Method
from dlx_check.conformance.leaking import Returned
from dlx_check.conformance.probe import NEWEST
from dlx_check.conformance.records import Record, Struct
from dlx_check.conformance.structs import (
    COPIED,
    DTYPES,
    PADDED,
    READ_ONLY,
    UNVERSIONED,
    VERSIONED,
)
from dlx_check.conformance.suite.row import CONFLICT, MUST, SHOULD, Check, of_array_api

__all__ = ["PRODUCER", "field", "readable"]

VERSION = (("max_version", NEWEST),)
NEVER, ALWAYS = (("copy", False),), (("copy", True),)


def field(text: str, name: str, *values: object) -> Expectation:
    """Ask for one of these values of a field of the struct."""

    def wrong(record: Record) -> str | None:
        if record.struct is None or getattr(record.struct, name) in values:
            return None
        return f"{name} is {getattr(record.struct, name)}"

    return Expectation(text, wrong)


def of_struct(text: str, holds: Callable[[Struct], object], says: str) -> Expectation:
    """Ask for a condition of the struct."""
    return expected(text, lambda r: r.struct is None or holds(r.struct), says)


def capsule(*names: str) -> Expectation:
    """Ask for a capsule of one of these names."""

    def wrong(record: Record) -> str | None:
        if record.raised is not None:
            return f"raises {raising(record)}"
        found = record.notes.get("name", record.notes.get("returned"))
        return None if found in names else f"returns {found}"

    return Expectation(f"it returns a capsule {' or '.join(names)}", wrong)


def _flag(record: Record, bit: int) -> bool:
    return record.struct is not None and bool(record.struct.flags & bit)


def _readable(record: Record) -> str | None:
    struct = record.struct
    if struct is None or struct.equal is not False:
        return None
    return _strides(struct) or "exports other elements"


def _strides(struct: Struct) -> str:
    return f"strides count {struct.counts}, not elements" if struct.counts else ""


def _kept(record: Record) -> str | None:
    if record.notes.get("kept", True):
        return None
    # Who reads beside the tensor sees others write.
    wrong = "" if record.struct is None else _strides(record.struct)
    return wrong or "the memory is given up or changed"


readable = Expectation("its elements are those of the tensor", _readable)
EITHER = capsule(VERSIONED, UNVERSIONED)
LEGACY = either(capsule(UNVERSIONED), refused(BufferError))
kept = Expectation("the memory stays", _kept)
copied = expected(
    "its elements are copied", lambda r: r.notes.get("shares") is False, ""
)
apart = note("shares", False, "the elements are copied", "shares memory")
returned = note(
    "leaks",
    False,
    "the memory comes back",
    "keeps the memory of what it exported, and nobody has it",
)
DELETED = all_of(EITHER, deleted(1))


def _has(bit: int, text: str, says: str) -> Expectation:
    """Ask for a flag of an export that has flags."""

    def wrong(record: Record) -> str | None:
        struct = record.struct
        if struct is None or struct.name != VERSIONED or struct.flags & bit:
            return None
        # Whether memory is shared is another question; a copy protects nothing.
        shares = record.notes.get("shares")
        if (bit == COPIED and shares) or (bit == READ_ONLY and shares is False):
            return None
        return says

    return Expectation(text, wrong, of_flags=True)


marked = _has(COPIED, "a copy is IS_COPIED", "copies, and IS_COPIED is not set")
no_type_error = expected(
    "it raises no TypeError",
    lambda r: r.raised is None or "TypeError" not in r.raised.bases,
    "raises TypeError",
)


_LIFE = (
    Check("producer.capsule.name", "R1", MUST, Export(), EITHER, "crash"),
    Check(
        "producer.capsule.static-name",
        "R2",
        MUST,
        Export(locate_name=True),
        note("static name", True, "its name is static", "its name is on the heap"),
        "crash",
    ),
    Check("producer.capsule.dropped", "R3", MUST, Export(), DELETED, "leak"),
    Check(
        "producer.capsule.used",
        "R4",
        MUST,
        Export(then="consume"),
        all_of(
            EITHER,
            note(
                "deleted by the used capsule",
                0,
                "a used capsule deletes nothing",
                "a used capsule deletes the tensor",
            ),
        ),
        "memory freed",
    ),
    Check(
        "producer.capsule.pending-exception",
        "R5",
        MUST,
        Export(then="pending"),
        note("pending", "KeyError", "the exception stays", "loses the exception"),
        "crash",
    ),
    Check(
        "producer.struct.kind",
        "R6 R27",
        MUST,
        Export(VERSION),
        of_struct(
            "a versioned struct has the major version 1",
            lambda s: s.name != VERSIONED or s.version[0] == 1,
            "has another major version",
        ),
        "wrong numbers",
    ),
    Check(
        "producer.deleter.set",
        "R3",
        MUST,
        Export(VERSION, then="consume"),
        all_of(EITHER, deleted(1)),
        "leak",
    ),
    Check(
        "producer.deleter.thread",
        "R13",
        MUST,
        Export(VERSION, then="thread"),
        EITHER,
        "crash",
    ),
    Check(
        "producer.memory.forgotten",
        "R15",
        MUST,
        Export(VERSION, then="forget"),
        kept,
        "memory freed",
    ),
    Check(
        "producer.memory.given-up",
        "R15",
        MUST,
        Export(VERSION, then="free"),
        kept,
        "memory freed",
    ),
    Check(
        "producer.shape.changed",
        "R100",
        MUST,
        Export(VERSION, then="change"),
        note(
            "kept", True, "shape and strides stay", "its shape changes with the tensor"
        ),
        "wrong numbers",
    ),
    Check(
        "producer.twice",
        "R16",
        MUST,
        Export(VERSION, then="twice"),
        all_of(
            kept,
            note(
                "independent", True, "two exports are apart", "gives one struct twice"
            ),
        ),
        "memory freed",
    ),
    Check(
        "producer.memory.returned",
        "R156",
        MUST,
        Returned(VERSION),
        returned,
        "leak",
        needs="producer.capsule.dropped",
    ),
    of_array_api(
        "producer.memory.returned.copy",
        "R156",
        MUST,
        Returned((*VERSION, *ALWAYS)),
        returned,
        "leak",
        needs="producer.memory.returned",
    ),
    Check(
        "producer.references",
        "R17",
        SHOULD,
        Export(VERSION),
        no_references,
        "leak",
    ),
    Check(
        "producer.failing.references",
        "R21",
        SHOULD,
        Method("failing"),
        note(
            "references kept",
            0,
            "no reference stays",
            "keeps references",
            of_raising=True,
        ),
        "leak",
    ),
    of_array_api(
        "producer.keyword-only",
        "R19",
        MUST,
        Method("positional"),
        refused(TypeError),
        "metadata",
    ),
    *(
        of_array_api(
            f"producer.keyword.{name}",
            "R20",
            MUST,
            Export(((name, value),)),
            no_type_error,
            "refusal",
        )
        for name, value in {
            "stream": None,
            "max_version": NEWEST,
            "dl_device": (1, 0),
            "copy": None,
        }.items()
    ),
)

_VERSIONS = (
    Check("producer.version.none", "R22", SHOULD, Export(), LEGACY, "refusal"),
    of_array_api(
        "producer.version.0",
        "R23 R26",
        MUST,
        Export((("max_version", (0, 8)),)),
        LEGACY,
        "crash",
    ),
    of_array_api(
        "producer.version.newest",
        "R24",
        SHOULD,
        Export(VERSION),
        capsule(VERSIONED),
        "metadata",
    ),
    of_array_api(
        "producer.version.lower-minor",
        "R25",
        SHOULD,
        Export((("max_version", (1, 0)),)),
        capsule(VERSIONED),
        "metadata",
    ),
    of_array_api(
        "producer.version.future",
        "R24 R27",
        SHOULD,
        Export((("max_version", (9, 0)),)),
        all_of(
            capsule(VERSIONED),
            of_struct(
                "the struct has the major version 1",
                lambda s: s.version[0] == 1,
                "has another major version",
            ),
        ),
        "metadata",
    ),
)


def _unasked(record: Record) -> str | None:
    """Say what is wrong with a copy that nobody has asked for."""
    if record.notes.get("shares") is not False:
        return None
    return marked.wrong(record) or "copies the elements"


def _unmarked(record: Record) -> bool:
    return not (record.notes.get("shares") and _flag(record, COPIED))


_COPY = (
    Check(
        "producer.flags.undefined",
        "R36",
        SHOULD,
        Export(VERSION),
        of_struct(
            "undefined flags are 0",
            lambda s: s.flags & ~(READ_ONLY | COPIED | PADDED) == 0,
            "sets undefined flags",
        ),
        "metadata",
    ),
    Check(
        "producer.flags.copied.shared",
        "R38",
        MUST,
        Export(VERSION),
        expected("shared memory is not IS_COPIED", _unmarked, "IS_COPIED is set"),
        "wrong numbers",
    ),
    Check(
        "producer.flags.padded",
        "R44",
        MUST,
        Export(VERSION),
        of_struct(
            "whole bytes are not padded", lambda s: not s.flags & PADDED, "says padded"
        ),
        "wrong numbers",
    ),
    of_array_api(
        "producer.copy.true",
        "R47",
        MUST,
        Export((*VERSION, *ALWAYS)),
        either(refused(BufferError), all_of(EITHER, apart, readable)),
        "shared after copy=True",
    ),
    of_array_api(
        "producer.copy.true.unversioned",
        "R47",
        MUST,
        Export(ALWAYS),
        either(refused(BufferError), all_of(EITHER, apart, readable)),
        "shared after copy=True",
    ),
    *(
        of_array_api(
            f"producer.copy.true.{kind}",
            "R47",
            MUST,
            Export((*VERSION, *ALWAYS), kind=kind),
            either(refused(BufferError), all_of(EITHER, apart, readable)),
            "shared after copy=True",
            needs=f"producer.kind.{kind}",
        )
        for kind in ("strided", "transposed", "negative", "broadcast")
    ),
    of_array_api(
        "producer.copy.true.served",
        "R47",
        SHOULD,
        Export((*VERSION, *ALWAYS)),
        EITHER,
        "refusal",
    ),
    of_array_api(
        "producer.copy.true.flag",
        "R37",
        MUST,
        Export((*VERSION, *ALWAYS)),
        either(refused(), marked),
        "metadata",
    ),
    of_array_api(
        "producer.copy.false",
        "R48",
        MUST,
        Export((*VERSION, *NEVER)),
        either(refused(BufferError), all_of(EITHER, shares)),
        "copied after copy=False",
    ),
    *(
        of_array_api(
            f"producer.copy.false.{kind}",
            "R48",
            MUST,
            Export((*VERSION, *NEVER), kind=kind),
            either(refused(BufferError), all_of(EITHER, shares)),
            "copied after copy=False",
            needs=f"producer.kind.{kind}",
        )
        for kind in ("strided", "transposed", "negative")
    ),
    of_array_api(
        "producer.copy.none",
        "R49",
        MUST,
        Export(VERSION),
        all_of(EITHER, Expectation("the elements are shared", _unasked)),
        "metadata",
    ),
    *(
        of_array_api(
            f"producer.device.{name}",
            names,
            MUST,
            Export(keywords),
            expects,
            "refusal" if expects is EITHER else "crash",
        )
        for name, names, keywords, expects in (
            ("none", "R51", (*VERSION, ("dl_device", None)), EITHER),
            ("own", "R53", (*VERSION, ("dl_device", (1, 0))), EITHER),
            ("cpu.unversioned", "R54", (("dl_device", (1, 0)),), LEGACY),
            (
                "foreign",
                "R52",
                (*VERSION, ("dl_device", (12, 0))),
                refused(BufferError),
            ),
            (
                "foreign.unversioned",
                "R52",
                (("dl_device", (12, 0)),),
                refused(BufferError),
            ),
        )
    ),
)

_STREAMS = (
    *(
        of_array_api(
            f"producer.stream.cpu.{name}",
            names,
            MUST,
            Export((("stream", value),)),
            refused(),
            "class of error",
        )
        for name, names, value in (
            ("legacy", "R70", 1),
            ("zero", "R70 R74", 0),
            ("negative", "R77", -2),
        )
    ),
    of_array_api(
        "producer.stream.cpu.unsynchronized",
        "R76 R70",
        CONFLICT,
        Export((("stream", -1),)),
        either(refused(), readable),
        "class of error",
        facts=((refused(), "refuses -1 on the CPU"), (EITHER, "takes -1 on the CPU")),
    ),
    of_array_api(
        "producer.stream.text",
        "R78",
        SHOULD,
        Export((("stream", "main"),)),
        refused(),
        "class of error",
    ),
)

_PLACE = (
    Check(
        "producer.device.pair",
        "R64",
        MUST,
        Export(VERSION),
        expected(
            "__dlpack_device__ returns a pair of integers",
            lambda r: isinstance(r.notes.get("device"), list),
            "returns no pair of integers",
        ),
        "metadata",
    ),
    Check(
        "producer.device.same",
        "R64",
        MUST,
        Export(VERSION),
        expected(
            "the struct has the device of __dlpack_device__",
            lambda r: (
                r.struct is None
                or not isinstance(r.notes["device"], list)
                or [*r.struct.device] == r.notes["device"]
            ),
            "the struct names another device than __dlpack_device__",
        ),
        "wrong numbers",
    ),
    Check(
        "producer.device.id",
        "R66",
        MUST,
        Export(VERSION),
        of_struct("the CPU has the id 0", lambda s: s.device[1] == 0, "has another id"),
        "metadata",
    ),
    Check(
        "producer.device.cpu",
        "R67",
        MUST,
        Export(VERSION),
        of_struct(
            "the CPU is the device type 1",
            lambda s: s.device[0] == 1,
            "says another; the suite checks tensors on the CPU, so make them there",
        ),
        "wrong numbers",
    ),
)


_DTYPES = {"bool": "R103", "complex64": "R104", "complex128": "R104"}


def _compact(struct: Struct) -> bool:
    return _null_is_compact(struct) or struct.strides is not None or struct.ndim == 0


def _null_is_compact(struct: Struct) -> bool:
    """Return whether NULL strides mean row-major, as before DLPack 1.2."""
    return struct.version < (1, 2)


_FIELDS = (
    Check(
        "producer.ndim",
        "R88",
        MUST,
        Export(VERSION),
        of_struct(
            "ndim and shape are those of the tensor",
            lambda s: (s.ndim, s.shape) in ((2, (2, 3)), (1, (6,))),
            "has another shape",
        ),
        "wrong numbers",
    ),
    Check(
        "producer.strides.set",
        "R89",
        MUST,
        Export(VERSION),
        of_struct("strides are not NULL", _compact, "strides are NULL"),
        "crash",
        needs="producer.version.newest",
    ),
    Check(
        "producer.scalar",
        "R91",
        MUST,
        Export(VERSION, shape=()),
        all_of(EITHER, readable, field("ndim is 0", "ndim", 0)),
        "wrong numbers",
    ),
    Check(
        "producer.empty",
        "R88",
        MUST,
        Export(VERSION, shape=(0, 3)),
        all_of(EITHER, field("it is empty", "shape", (0, 3), (0,)), deleted(1)),
        "leak",
    ),
    Check(
        "producer.empty.null",
        "R93",
        SHOULD,
        Export(VERSION, shape=(0, 3)),
        of_struct("data is NULL", lambda s: "data" in s.null, "data is not NULL"),
        "metadata",
    ),
    Check(
        "producer.alignment",
        "R96",
        SHOULD,
        Export(VERSION),
        EITHER,
        "metadata",
        facts=((EITHER, "alignment is that of its allocator"),),
    ),
    *(
        Check(
            f"producer.kind.{kind}",
            names,
            level,
            Export(VERSION, kind=kind),
            either(refused(), readable),
            "wrong numbers",
        )
        for kind, names, level in (
            ("strided", "R92", MUST),
            ("transposed", "R92", MUST),
            ("broadcast", "R92 R98", MUST),
            ("negative", "R92 R97", MUST),
            ("subclass", "R63", SHOULD),
            ("negated", "R63", SHOULD),
            ("conjugated", "R63", SHOULD),
            ("requires-grad", "R63", SHOULD),
        )
    ),
    *(
        Check(
            f"producer.dtype.{name}",
            _DTYPES.get(name, "R102"),
            MUST,
            Export(VERSION, dtype=name),
            all_of(
                field("code, bits and lanes are those of dlpack.h", "dtype", dtype),
                readable,
            ),
            "wrong numbers",
        )
        for name, dtype in DTYPES.items()
        if dtype[0] in (0, 1, 2, 5, 6)
    ),
)


def _other_errors(record: Record) -> str | None:
    said = [
        f"{found[0]} for {kind}"
        for kind, found in record.notes["kinds"].items()
        if isinstance(found, list) and "BufferError" not in found
    ]
    return f"raises {', '.join(said)}" if said else None


_KINDS = (
    Check(
        "producer.refuses",
        "R63",
        SHOULD,
        Kinds(),
        expected(
            "what DLPack cannot describe is refused",
            lambda r: all(found is not False for found in r.notes["kinds"].values()),
            "exports wrong elements",
        ),
        "wrong numbers",
    ),
    Check(
        "producer.refuses.null-data",
        "R111",
        MUST,
        Kinds(),
        expected(
            "elements have an address",
            lambda r: "NULL data" not in r.notes["kinds"].values(),
            "exports elements with NULL data",
        ),
        "crash",
        needs="producer.refuses",
    ),
    Check(
        "producer.refuses.error",
        "R63",
        SHOULD,
        Kinds(),
        Expectation("BufferError is raised", _other_errors, True),
        "class of error",
        needs="producer.refuses",
    ),
    of_array_api(
        "producer.read-only.flag",
        "R39",
        MUST,
        Export(VERSION, kind="read-only"),
        all_of(_has(READ_ONLY, "READ_ONLY is set", "READ_ONLY is not set"), readable),
        "written though protected",
    ),
    of_array_api(
        "producer.read-only.unversioned",
        "R40",
        SHOULD,
        Export(kind="read-only"),
        # Nobody can write to what is protected if its elements are copied.
        either(copied, refused(BufferError)),
        "written though protected",
    ),
)


PRODUCER = (*_LIFE, *_VERSIONS, *_COPY, *_STREAMS, *_PLACE, *_FIELDS, *_KINDS)
"""All of them."""
