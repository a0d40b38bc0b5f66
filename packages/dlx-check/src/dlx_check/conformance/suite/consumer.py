"""Rows for what a library does with tensors that it imports."""

from __future__ import annotations

from dataclasses import replace

from dlx_check.conformance import expect
from dlx_check.conformance.expect import (
    Expectation,
    accepted,
    all_of,
    deleted,
    deleted_anyway,
    deleted_once,
    either,
    elsewhere,
    equal,
    expected,
    immutable,
    refused,
    shares,
    unaffected,
)
from dlx_check.conformance.experiments import Import
from dlx_check.conformance.probe import Tensor
from dlx_check.conformance.structs import DTYPES, PADDED, READ_ONLY
from dlx_check.conformance.suite.row import (
    CONFLICT,
    MUST,
    SHOULD,
    Check,
    of_from_dlpack,
    of_table,
)

__all__ = ["CONSUMER"]

COPY = (("copy", True),)
NO_COPY = (("copy", False),)
# Which of the two it raises is where the standard contradicts itself.
SHARED = either(refused(BufferError, ValueError), all_of(shares, equal))
VERSIONED = "versioned"

WHOLE = all_of(accepted, equal, deleted_once)
HANDLED = all_of(either(refused(), equal), deleted_once)
"""Refused, or taken with the right elements; deleted once in both cases."""
COPIED = either(refused(), all_of(elsewhere, equal, unaffected))
REFUSED = all_of(refused(), deleted_once)


def _shares(value: bool) -> Expectation:
    """Ask what was seen; not every target has addresses."""
    text = "its elements are shared" if value else "its elements are copied"
    return expected(text, lambda r: r.notes.get("shares") is value, "")


_LIFE = (
    Check(
        "consumer.capsule.renamed", "R7", MUST, Import(), expect.used, "memory freed"
    ),
    Check(
        "consumer.memory.unwritten",
        "R155",
        MUST,
        Import(Tensor((5,))),
        expect.unwritten,
        "wrong numbers",
    ),
    Check("consumer.capsule.dropped", "R18", MUST, Import(), equal, "memory freed"),
    Check("consumer.deleter.once", "R8", MUST, Import(), deleted_once, "leak"),
    Check(
        "consumer.deleter.view",
        "R8",
        MUST,
        Import(view=True),
        all_of(accepted, expect.held_by_view, deleted_once),
        "memory freed",
    ),
    Check(
        "consumer.deleter.null",
        "R9",
        MUST,
        Import(Tensor(null="deleter")),
        all_of(accepted, equal),
        "crash",
        needs="consumer.capsule.dropped",
    ),
    Check(
        "consumer.deleter.no-context",
        "R8",
        MUST,
        Import(Tensor(null="context")),
        deleted_once,
        "leak",
    ),
    Check(
        "consumer.capsule.used",
        "R10",
        MUST,
        Import(Tensor(name="used_dltensor_versioned", generation=VERSIONED)),
        all_of(refused(), deleted(0)),
        "memory freed",
    ),
    Check(
        "consumer.capsule.unknown-name",
        "R10",
        MUST,
        Import(Tensor(name="tensor")),
        all_of(refused(), deleted(0)),
        "memory freed",
    ),
    Check(
        "consumer.capsule.consumed-twice",
        "R10 R35",
        MUST,
        Import(give="twice"),
        refused(),
        "memory freed",
    ),
    Check(
        "consumer.capsule.argument",
        "R35",
        MUST,
        Import(give="capsule"),
        HANDLED,
        "memory freed",
        facts=((refused(), "takes no capsules"),),
    ),
    Check(
        "consumer.failed.deleted",
        "R11",
        MUST,
        Import(Tensor(dtype=(99, 32, 1))),
        either(accepted, deleted_anyway),
        "leak",
    ),
)

_VERSIONS = (
    Check(
        "consumer.major.newer",
        "R29 R28",
        MUST,
        Import(Tensor(version=(2, 0), generation=VERSIONED)),
        REFUSED,
        "wrong numbers",
    ),
    Check(
        "consumer.major.newer.untouched",
        "R29",
        MUST,
        Import(Tensor(version=(2, 0), generation=VERSIONED, wild=True), shows=False),
        REFUSED,
        "crash",
    ),
    Check(
        "consumer.major.newer.capsule",
        "R29 R35",
        MUST,
        Import(Tensor(version=(2, 0), generation=VERSIONED), give="capsule"),
        REFUSED,
        "wrong numbers",
    ),
    Check(
        "consumer.minor.newer",
        "R30",
        SHOULD,
        Import(Tensor(version=(1, 99), generation=VERSIONED)),
        WHOLE,
        "refusal",
        needs="consumer.generation.versioned",
    ),
    of_from_dlpack(
        "consumer.asks.newest", "R32", SHOULD, Import(), expect.asks_newest, "metadata"
    ),
    Check(
        "consumer.old-producer",
        "R32",
        SHOULD,
        Import(Tensor(old=True)),
        WHOLE,
        "refusal",
    ),
    of_from_dlpack(
        "consumer.old-producer.copy",
        "R33",
        MUST,
        Import(Tensor(old=True), COPY),
        COPIED,
        "shared after copy=True",
    ),
    Check(
        "consumer.generation.versioned",
        "R34",
        SHOULD,
        Import(Tensor(generation=VERSIONED)),
        WHOLE,
        "refusal",
    ),
    Check(
        "consumer.generation.unversioned",
        "R34",
        SHOULD,
        Import(Tensor(generation="unversioned")),
        WHOLE,
        "refusal",
    ),
)

_FLAGS = (
    Check(
        "consumer.read-only.accepted",
        "R41",
        SHOULD,
        Import(Tensor(flags=READ_ONLY, generation=VERSIONED)),
        all_of(accepted, equal),
        "refusal",
        needs="consumer.generation.versioned",
    ),
    Check(
        "consumer.read-only.kept",
        "R42",
        MUST,
        Import(Tensor(flags=READ_ONLY)),
        either(_shares(False), immutable),
        "written though protected",
        facts=((expect.says_nothing, "imports no READ_ONLY"),),
    ),
    Check(
        "consumer.read-only.exported",
        "R42",
        MUST,
        Import(Tensor(flags=READ_ONLY)),
        either(
            expected(
                "it has no read-only tensors",
                lambda r: (
                    not r.notes.get("has read-only")
                    and expect.protected.wrong(r) is not None
                ),
                "",
            ),
            _shares(False),
            expect.exports_read_only,
        ),
        "written though protected",
    ),
    Check(
        "consumer.unversioned.writable",
        "R43",
        SHOULD,
        Import(Tensor(generation="unversioned")),
        either(refused(), equal),
        "wrong numbers",
        facts=(
            (expect.writable, "imports unversioned capsules as writable"),
            (expect.protected, "imports unversioned capsules as read-only"),
        ),
    ),
    Check(
        "consumer.flags.unknown",
        "R46",
        CONFLICT,
        Import(Tensor(flags=1 << 40)),
        HANDLED,
        "refusal",
        facts=(
            (refused(), "refuses unknown flags"),
            (accepted, "ignores unknown flags"),
        ),
    ),
    Check(
        "consumer.padded",
        "R45",
        MUST,
        Import(Tensor(dtype="float4_e2m1fn", flags=PADDED)),
        HANDLED,
        "wrong numbers",
    ),
)

_COPY = (
    Check(
        "consumer.copy.none",
        "R49",
        SHOULD,
        Import(),
        either(refused(), equal),
        "wrong numbers",
        facts=((_shares(True), "shares memory"), (_shares(False), "copies memory")),
    ),
    *(
        of_from_dlpack(
            f"consumer.copy.true.{name}",
            "R59",
            MUST,
            Import(tensor, COPY),
            COPIED,
            "shared after copy=True",
        )
        for name, tensor in {
            "aligned": Tensor(),
            "misaligned": Tensor(off=4),
            "unversioned": Tensor(generation="unversioned"),
            "read-only": Tensor(flags=READ_ONLY),
            "unhelpful-producer": Tensor(copies=False),
        }.items()
    ),
    *(
        of_from_dlpack(
            f"consumer.copy.true.{name}",
            "R59",
            MUST,
            Import(tensor, COPY),
            COPIED,
            "shared after copy=True",
            # Who misreads the layout is told so once.
            needs=f"consumer.strides.{name}",
        )
        for name, tensor in {
            "transposed": Tensor(strides=(1, 2)),
            "gaps": Tensor(strides=(8, 2)),
            "negative": Tensor((6,), strides=(-1,)),
            "zero": Tensor(strides=(0, 1)),
        }.items()
    ),
    of_from_dlpack(
        "consumer.copy.false.aligned",
        "R58",
        MUST,
        Import(keywords=NO_COPY),
        SHARED,
        "copied after copy=False",
    ),
    *(
        of_from_dlpack(
            f"consumer.copy.false.{name}",
            "R58",
            MUST,
            Import(tensor, NO_COPY),
            SHARED,
            "copied after copy=False",
            needs=needs,
        )
        for name, tensor, needs in (
            ("misaligned", Tensor(off=4), "consumer.misaligned.4"),
            *(
                (name, Tensor(shape, strides=strides), f"consumer.strides.{name}")
                for name, shape, strides in (
                    ("transposed", (2, 3), (1, 2)),
                    ("gaps", (2, 3), (8, 2)),
                    ("negative", (6,), (-1,)),
                )
            ),
        )
    ),
    of_from_dlpack(
        "consumer.device.none",
        "R56",
        MUST,
        Import(keywords=(("device", None),)),
        all_of(accepted, equal),
        "refusal",
    ),
    of_from_dlpack(
        "consumer.device.cpu",
        "R57 R68",
        MUST,
        Import(keywords=(("device", "cpu"),)),
        all_of(accepted, equal, expect.plain_devices),
        "refusal",
    ),
    Check(
        "consumer.stream.cpu", "R71", MUST, Import(), expect.no_stream, "class of error"
    ),
)

_ERRORS = (
    *(
        of_from_dlpack(
            f"consumer.error.unchanged.{name}",
            "R60",
            MUST,
            Import(Tensor(raises=((method, "LookupError"),))),
            expects,
            "class of error",
        )
        for name, method, expects in (
            ("export", "__dlpack__", expect.unchanged),
            # Who does not need the answer may go on without it.
            ("device", "__dlpack_device__", either(accepted, expect.unchanged)),
        )
    ),
    Check(
        "consumer.error.no-second-call",
        "R32",
        SHOULD,
        Import(Tensor(raises=(("__dlpack__", "ValueError"),))),
        expect.asked_once("__dlpack__"),
        "class of error",
    ),
    *(
        of_from_dlpack(
            f"consumer.missing.{name}",
            "R61",
            MUST,
            Import(Tensor(missing=methods)),
            refused(AttributeError),
            "class of error",
        )
        for name, methods in (
            ("export", "__dlpack__"),
            ("device", "__dlpack_device__"),
            ("both", "__dlpack__ __dlpack_device__"),
        )
    ),
    of_from_dlpack(
        "consumer.device.unsupported",
        "R62",
        SHOULD,
        Import(Tensor(device=(12, 0)), shows=False),
        either(accepted, refused(BufferError)),
        "class of error",
    ),
    of_from_dlpack(
        "consumer.device.cuda",
        "R62",
        SHOULD,
        # The probe refuses, so nothing is ever on the device.
        Import(Tensor(device=(2, 0), raises=(("__dlpack__", "BufferError"),))),
        expect.survived,
        "crash",
    ),
    Check(
        "consumer.device.unknown",
        "R31",
        MUST,
        Import(Tensor(device=(99, 0)), shows=False),
        deleted_anyway,
        "crash",
    ),
    of_from_dlpack(
        "consumer.device.unknown.error",
        "R31",
        SHOULD,
        Import(Tensor(device=(99, 0)), shows=False),
        either(accepted, refused(BufferError)),
        "class of error",
    ),
    Check(
        "consumer.dtype.unknown",
        "R31",
        MUST,
        Import(Tensor(dtype=(99, 32, 1))),
        HANDLED,
        "crash",
    ),
    of_from_dlpack(
        "consumer.dtype.unknown.error",
        "R31",
        SHOULD,
        Import(Tensor(dtype=(99, 32, 1))),
        either(accepted, refused(BufferError)),
        "class of error",
    ),
)


def _another(dtype: str) -> Expectation:
    """Ask whether a dtype that NumPy has is shown as another one."""
    own = dtype if dtype.startswith(_NUMPY) else ""
    return expected("", lambda r: own and r.shown and r.shown.dtype != own, "")


_NUMPY = ("int", "uint", "float16", "float32", "float64", "complex", "bool")


_LAYOUTS = {
    "strides.null": ("R90", SHOULD, Tensor(null="strides", version=(1, 1)), WHOLE),
    "scalar.null": ("R91", SHOULD, Tensor((), null="shape strides"), WHOLE),
    "scalar.set": ("R91", SHOULD, Tensor(()), WHOLE),
    "empty.null": ("R94", MUST, Tensor((0, 3), null="data"), WHOLE),
    "empty.set": ("R94", MUST, Tensor((0, 3)), WHOLE),
    "byte-offset": ("R95", MUST, Tensor(byte_offset=512), HANDLED),
    "misaligned.64": ("R96", SHOULD, Tensor(off=64), WHOLE),
    "misaligned.4": ("R96", SHOULD, Tensor(off=4), WHOLE),
    "strides.negative": ("R97", MUST, Tensor((6,), strides=(-1,)), HANDLED),
    "strides.zero": ("R98", MUST, Tensor((2, 3), strides=(0, 1)), HANDLED),
    "strides.transposed": ("R92", MUST, Tensor((2, 3), strides=(1, 2)), HANDLED),
    "strides.gaps": ("R92", MUST, Tensor((2, 3), strides=(8, 2)), HANDLED),
    "strides.size-1": ("R99", MUST, Tensor((2, 1, 3), strides=(3, 777, 1)), HANDLED),
    "strides.size-1.accepted": (
        "R99",
        MUST,
        Tensor((2, 1, 3), strides=(3, 777, 1)),
        accepted,
    ),
    "dtype.fp6.padded-bits": ("R105", MUST, Tensor(dtype=(15, 8, 1)), refused()),
    "dtype.fp4.padded-bits": ("R105", MUST, Tensor(dtype=(17, 8, 1)), refused()),
    "dtype.lanes": ("R108", MUST, Tensor(dtype=(2, 32, 2)), HANDLED),
    "dtype.lanes.error": (
        "R108",
        SHOULD,
        Tensor(dtype=(2, 32, 2)),
        either(accepted, refused(BufferError)),
    ),
}

_DTYPE = {"bool": "R103", "complex64": "R104", "complex128": "R104"} | {
    name: "R106" for name in DTYPES if name.startswith("float8")
}
_EFFECTS = {SHOULD: "refusal", MUST: "wrong numbers"}

_FIELDS = (
    *(
        Check(
            f"consumer.{name}",
            names,
            level,
            Import(tensor),
            expects,
            "class of error"
            if name.endswith(".error")
            else "leak"
            if "empty" in name
            else _EFFECTS[level],
            stimulus="older" if name == "strides.null" else "legal",
        )
        for name, (names, level, tensor, expects) in _LAYOUTS.items()
    ),
    *(
        Check(
            f"consumer.dtype.{name}",
            _DTYPE.get(name, "R31"),
            MUST,
            Import(Tensor(dtype=name)),
            HANDLED,
            "wrong numbers",
            facts=(
                (refused(), f"imports no {name}"),
                (_another(name), f"takes {name} as another dtype"),
            ),
        )
        for name in DTYPES
        if DTYPES[name][1] >= 8
    ),
)

_ROBUST = {
    "null-data": ("R111", Tensor(null="data")),
    "overflow": ("R109", Tensor(extents=(1 << 40, 1 << 40))),
    "ndim.negative": ("R88", Tensor(ndim=-1)),
    "ndim.huge": ("R88", Tensor(ndim=1 << 20)),
    "extent.negative": ("R88", Tensor(extents=(-2, 3))),
    "shape.null": ("R88", Tensor(null="shape")),
    "lanes.none": ("R102", Tensor(dtype=(2, 32, 0))),
    "bits.none": ("R102", Tensor(dtype=(2, 0, 1))),
}

_MALFORMED = tuple(
    Check(
        f"consumer.malformed.{name}",
        names,
        MUST,
        Import(tensor),
        REFUSED,
        "crash",
        stimulus="malformed",
    )
    for name, (names, tensor) in _ROBUST.items()
)

_TABLES = (
    of_table(
        "consumer.table.newer",
        "R119",
        MUST,
        Import(Tensor(table="newer")),
        all_of(accepted, equal),
        "crash",
    ),
    of_table(
        "consumer.table.older",
        "R119 R120",
        MUST,
        Import(Tensor(table="newer-before-plain")),
        all_of(accepted, equal),
        "crash",
    ),
    of_table(
        "consumer.table.no-borrow",
        "R122",
        MUST,
        Import(Tensor(table="no-borrow")),
        WHOLE,
        "crash",
    ),
    of_table(
        "consumer.table.plain",
        "R117",
        MUST,
        Import(Tensor(table="plain")),
        WHOLE,
        "crash",
        facts=(
            (expect.asked_of("managed_tensor_from_py_object_no_sync"), "uses tables"),
            (expect.asked_of("__dlpack__"), "uses no tables"),
        ),
    ),
    of_table(
        "consumer.table.read-only",
        "R42",
        MUST,
        Import(Tensor(flags=READ_ONLY, table="plain")),
        either(_shares(False), immutable),
        "written though protected",
        facts=((expect.says_nothing, "imports no READ_ONLY by tables"),),
    ),
    of_table(
        "consumer.table.refuses",
        "R147",
        SHOULD,
        Import(
            Tensor(
                table="plain",
                raises=(("managed_tensor_from_py_object_no_sync", "BufferError"),),
            )
        ),
        all_of(accepted, equal),
        "refusal",
    ),
)

CONSUMER = (
    *_LIFE,
    *(
        # Who misreads plain elements is told so once.
        replace(check, needs=check.needs or "consumer.capsule.dropped")
        for check in (*_VERSIONS, *_FLAGS, *_COPY, *_FIELDS, *_TABLES)
    ),
    *_ERRORS,
    *_MALFORMED,
)
"""All of them."""
