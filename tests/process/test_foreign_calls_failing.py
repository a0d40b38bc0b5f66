"""Each call of a foreign C function goes wrong once: tables, deleters, buffers, Arrow.

No attempt may crash, leave an exception set, or leave a reference; each deleter runs
once. What was raised comes out, unless dlx asks again or of its own accord: whether a
result is read-only, after a fast path for torch's tensors, and for a stream that a
tensor was not imported on. An interrupt comes out there, too.
"""

from __future__ import annotations

from typing import Any

import pytest
from support import failing_protocol_steps, failing_steps
from support.failing_answers import Answers, answers, misreported, unclean, unnoticed
from support.optional_libraries import requires

pytestmark = pytest.mark.slow

TABLES = list(failing_steps.STEPS)
PROTOCOLS = list(failing_protocol_steps.STEPS)
WELL = ("raises", "refuses", "is interrupted")
EXPORT = "managed_tensor_from_py_object_no_sync"
VIEW = "dltensor_from_py_object_no_sync"
IMPORT = "managed_tensor_to_py_object_no_sync"


def attempts(found: Answers) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the function, what went wrong in it, and what came of it."""
    assert found
    keys = [key.partition("/") for key in found]
    return [
        (name, rest.partition("/")[0], said)
        for (name, _, rest), said in zip(keys, found.values(), strict=True)
    ]


def wrong(step: str, found: Answers) -> list[str]:
    """Say which attempts did not come out as they should."""
    said_of = []
    for name, how, said in attempts(found):
        where = f"{name} {how}"
        said_of += [f"{where}: {each}" for each in unclean(said)]
        if "ended" in said or step.startswith("inspect"):
            continue  # It says what fails, and raises nothing.
        text = ""
        if name == "deleter" or name.startswith("release"):
            text = ended_badly(step, said)
        elif step.startswith("allocation"):
            # It goes to the consumer's SetError, whatever it is.
            is_known = said["raised"] == "Reported" or name in (EXPORT, "deleter")
            is_known |= how == "reports and succeeds" or not said["reached"]
            text = "" if is_known else "it went unnoticed"
        elif how in WELL:
            text = misreported(said, how, asked_again=asked_again(step, name))
        elif how != "reports and succeeds" and not how.startswith("reports"):
            falls_back = name in (EXPORT, VIEW, "get_next", "get_last_error")
            text = unnoticed(said, falls_back=falls_back)
        said_of += [f"{where}: {text}"] if text else []
    return said_of


def asked_again(step: str, name: str) -> bool:
    """Whether dlx may go on after an exception of this function."""
    # Whether a result is read-only, and whether the library would say why it refuses.
    return name == EXPORT and step in (
        "convert of read-only memory",
        "convert from a read-only table",
        "launcher of a refused tensor",
    )


def ended_badly(step: str, said: dict[str, Any]) -> str:
    """Say how an exception that a deleter or a release has set came out."""
    if step.startswith("export by table") and said["is own"]:
        return ""  # The consumer called the library's own deleter.
    return f"raised {said['raised']}" if said["raised"] else ""


@pytest.mark.parametrize("step", TABLES)
def test_a_table_that_goes_wrong_is_an_exception(step: str) -> None:
    """R8, R11, R60, R123: its own if it has set one; nothing is kept."""
    assert wrong(step, answers("failing_steps", *TABLES)[step]) == []


@pytest.mark.parametrize("step", PROTOCOLS)
def test_a_buffer_or_struct_that_goes_wrong_is_an_exception(step: str) -> None:
    """R11, R60, docs/safety.md S10 and S12: each is released once."""
    assert wrong(step, answers("failing_protocol_steps", *PROTOCOLS)[step]) == []


def test_what_a_deleter_sets_is_reported() -> None:
    """R5, R8: to `sys.unraisablehook`, as it has no caller; also inside of a call."""
    steps = ["from_dlpack", "from_dlpack with a copy", "launcher of addresses"]
    steps += [
        "bridge",
        "uses of a tensor",
        "convert to NumPy",
        "from_dlpack by protocol",
    ]
    found = answers("failing_steps", *TABLES)
    for step in steps:
        for name, how, said in attempts(found[step]):
            if name == "deleter" and said["reached"]:
                assert said["reported"] == 1, (step, how)


def test_what_a_release_sets_is_reported() -> None:
    """R5, docs/safety.md S10 and S12: of buffers, and of Arrow's structs."""
    found = answers("failing_protocol_steps", *PROTOCOLS)
    seen = set()
    for step in PROTOCOLS:
        for name, how, said in attempts(found[step]):
            if name.startswith("release") and said["reached"]:
                assert said["reported"] == 1, (step, name, how)
                seen.add(name)
    assert len(seen) == 4


def test_a_function_without_an_exception_is_named() -> None:
    """R123: the message says which function of which type it was."""
    found = answers("failing_steps", *TABLES)["from_dlpack without a protocol"]
    texts = {how: said["text"] for name, how, said in attempts(found) if said["raised"]}
    assert texts["fails"].endswith(".OnlyTable failed without an exception")
    found = answers("failing_protocol_steps", *PROTOCOLS)["from_dlpack of a buffer"]
    texts = {how: said["text"] for name, how, said in attempts(found) if said["raised"]}
    assert texts["fails"].endswith(".Exporter failed without an exception")


def test_torchs_table_that_goes_wrong_is_an_exception() -> None:
    """R8, R11, R123: on the quick paths, too, where dlx asks a second time."""
    requires("torch")
    found = answers("failing_torch_steps")
    assert len(found) > 20
    assert {k: said for k, v in found.items() if (said := wrong_in_torch(k, v))} == {}


def wrong_in_torch(step: str, found: Answers) -> list[str]:
    """As `wrong`; a quick path that fails is followed by the usual one."""
    said_of = []
    for name, how, said in attempts(found):
        texts = unclean(said)
        if how in WELL:
            texts.append(misreported(said, how, asked_again=name in (EXPORT, VIEW)))
        elif not how.startswith("reports"):
            # Where the target's table has failed, `dtype=` casts before, and repeats.
            cast_before = (step, name) == ("convert with a dtype", IMPORT)
            falls_back = name in (EXPORT, VIEW) or cast_before
            texts.append(unnoticed(said, falls_back=falls_back))
        said_of += [f"{name} {how}: {text}" for text in texts if text]
    return said_of
