"""The deviations file: what is known fails no run, and what is out of date does."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from dlx_check import CannotCheck, Report, Result, run, select
from dlx_check.cli import main
from dlx_check.conformance.deviations import FILE, Deviations, Judgement, find
from dlx_check.conformance.suite import CHECKS
from hypothesis import given
from hypothesis import strategies as st

from conformance.samples import dlx

KNOWN = "consumer.missing.device"
MET = "consumer.deleter.null"
ENTRY = f"""
[[deviation]]
check = "{KNOWN}"
result = "deviates"
reason = "NumPy asks for the device later"
link = "https://github.com/numpy/numpy/issues/1"
"""
BARE = f'[[deviation]]\ncheck = "{KNOWN}"\nresult = "deviates"\n'
ONLY = ["--only", f"{KNOWN},{MET}"]


@pytest.fixture(scope="module")
def report() -> Report:
    """Give a report of NumPy, which deviates in one of two checks."""
    return run("numpy", select([KNOWN, MET]))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, outside of CI."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


@pytest.fixture
def of_file(here: Path, report: Report) -> list[str]:
    """Give the command for a report in a file, which is judged as a run is."""
    (here / "numpy.jsonl").write_text("\n".join(report.lines()))
    return ["check", "numpy.jsonl"]


def result_of(report: Report, name: str) -> Result:
    return next(result for result in report.results if result.check == name)


def test_a_known_deviation_fails_no_run(report: Report) -> None:
    """README.md, Deviations file."""
    judged = Deviations.parse(ENTRY, FILE).judge(report)
    assert judged.those("known") == {KNOWN}
    assert judged.complaints == ()
    assert judged.exit_code(strict=True) == 0
    assert Deviations().judge(report).exit_code(strict=False) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ENTRY.replace(KNOWN, MET), f"{MET}: it no longer deviates: delete the entry"),
        (ENTRY.replace("deviates", "crashes"), "it deviates, the file says crashes"),
        (BARE, f"{FILE}: {KNOWN}: it has no reason and no link"),
        (ENTRY.replace("link", "# link"), "it has no link"),
        (ENTRY.replace("NumPy asks for the device later", " "), "it has no reason"),
        (ENTRY.replace("reason =", "# "), "it has no reason"),
        (ENTRY.replace("missing", "misssing"), "the suite has no such check"),
    ],
    ids=[
        "meets",
        "other result",
        "bare",
        "no link",
        "blank",
        "no reason",
        "unknown check",
    ],
)
def test_strict_refuses_an_entry_that_is_out_of_date(
    report: Report, text: str, says: str
) -> None:
    """README.md, Deviations file: the complaint names the file and the entry."""
    judged = Deviations.parse(text, FILE).judge(report)
    assert len(judged.complaints) == 1
    assert says in judged.complaints[0]
    assert judged.complaints[0].startswith(f"{FILE}: consumer.")
    assert judged.exit_code(strict=True) == 1


def test_without_strict_an_entry_that_is_out_of_date_fails_nothing(
    report: Report,
) -> None:
    """README.md, Deviations file: but another result is not a known one."""
    stale = Deviations.parse(ENTRY + ENTRY.replace(KNOWN, MET), FILE).judge(report)
    assert stale.complaints
    assert stale.exit_code(strict=False) == 0
    other = Deviations.parse(ENTRY.replace("deviates", "hangs"), FILE).judge(report)
    assert other.exit_code(strict=False) == 1


def test_what_is_untestable_neither_passes_nor_fails_an_entry(report: Report) -> None:
    """README.md, Deviations file: one file serves machines without a GPU, too."""
    untestable = replace(result_of(report, KNOWN), result="untestable")
    judged = Deviations.parse(BARE, FILE).judge(replace(report, results=(untestable,)))
    assert [verdict.means for verdict in judged.verdicts] == ["untestable"]
    assert judged.exit_code(strict=True) == 0


@pytest.mark.parametrize(
    ("versions", "code"),
    [("<0.11", 1), (">=2, <3", 0), ("==2.4.6", 0), ("!=2.4.6", 1), ("", 0)],
)
def test_an_entry_is_of_the_versions_that_it_names(
    report: Report, versions: str, code: int
) -> None:
    """README.md, Deviations file: beyond them the deviation is a new one."""
    numpy = replace(report, header=replace(report.header, version="2.4.6"))
    text = f'{ENTRY}versions = "{versions}"\n'
    judged = Deviations.parse(text, FILE).judge(numpy)
    assert judged.exit_code(strict=True) == code
    assert judged.complaints == ()


def test_versions_of_a_target_without_a_version_are_refused(report: Report) -> None:
    """README.md, Deviations file: what cannot be compared is no match."""
    numpy = replace(report, header=replace(report.header, version="unknown"))
    file = Deviations.parse(f'{ENTRY}versions = "<3"\n', FILE)
    with pytest.raises(CannotCheck, match="'unknown' is no version"):
        file.judge(numpy)


def test_checks_that_are_newer_than_the_files_suite_fail_nothing(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """README.md, Deviations file: an upgrade of dlx breaks nobody's CI."""
    monkeypatch.setitem(Deviations.judge.__globals__["_SINCE"], KNOWN, "1.3.1")
    judged = Deviations.parse('suite = "1.3.0"', FILE).judge(report)
    assert judged.those("newer") == {KNOWN}
    assert judged.exit_code(strict=True) == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[deviation]\n", "not TOML"),
        ("suit = '1.3.0'", "no key 'suit'; there are suite, target"),
        (ENTRY + "reasons = ''", "no key 'reasons'"),
        (ENTRY + "versions = 3", "versions is no text"),
        (ENTRY + "versions = '~=3'", "'~=3' is no comparison"),
        (ENTRY + "versions = '<3,'", "'' is no comparison"),
        ("suite = 1.3", "suite is no text"),
        ("suite = 'new'", "'new' is no version"),
        ("suite = '99.0'", "newer than"),
        ("deviation = 3", r"write \[\[deviation\]\]"),
        ("deviation = [3]", "no table"),
        ("[[deviation]]\ncheck = 'a.b'", "it has no result"),
        ("[[deviation]]\nresult = 'hangs'", "it has no check"),
        (ENTRY.replace("deviates", "fails"), "'fails' is none of deviates, crashes"),
        (ENTRY.replace("missing", "*"), "a pattern"),
        (ENTRY + ENTRY, f"{KNOWN}: it is there twice"),
    ],
)
def test_what_cannot_be_read_is_exit_code_2(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    """README.md, Deviations file: a typo makes no deviation pass."""
    (here / "my.toml").write_text(text)
    assert main(["check", "numpy", *ONLY, "--deviations", "my.toml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("dlx check: my.toml: ")
    with pytest.raises(CannotCheck, match=says):
        Deviations.read("my.toml")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """README.md, Deviations file: nothing but `CannotCheck` is raised."""
    try:
        found = Deviations.parse(text, FILE)
    except CannotCheck:
        return
    assert tomllib.loads(text).keys() <= {"suite", "target", "deviation"}
    assert len(found.entries) == len(tomllib.loads(text).get("deviation", []))


def test_strict_is_the_default_in_ci(
    here: Path, of_file: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """README.md, Deviations file: where CI is set, and not to 0 or false."""
    (here / FILE).write_text(BARE)
    assert main(of_file) == 0
    assert main([*of_file, "--strict"]) == 1
    for value, code in (("true", 1), ("false", 0), ("0", 0), ("", 0)):
        monkeypatch.setenv("CI", value)
        assert main(of_file) == code
    assert main(["check", "numpy", *ONLY]) == 0
    monkeypatch.setenv("CI", "true")
    assert main(["check", "numpy", *ONLY]) == 1
    assert main([*of_file, "--no-strict"]) == 0


def test_what_is_known_is_counted_and_not_listed(
    here: Path, of_file: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md, Deviations file; with --all it is listed, too."""
    (here / FILE).write_text(ENTRY)
    assert main(["check", "numpy", *ONLY]) == 0
    said = capsys.readouterr().out
    assert f"1 known: {FILE}" in said
    assert KNOWN not in said
    assert main([*of_file, "--all"]) == 0
    assert f"{KNOWN}  deviates" in capsys.readouterr().out


def test_reports_have_what_is_known(here: Path, of_file: list[str]) -> None:
    """README.md, Deviations file and Reports: of a report in a file, too."""
    assert main([*of_file, "--badge", "badge.json"]) == 1
    assert "known" not in (here / "badge.json").read_text()
    (here / FILE).write_text(ENTRY)
    assert main([*of_file, "--badge", "badge.json"]) == 0
    assert "1 known" in (here / "badge.json").read_text()
    (here / FILE).write_text(BARE)
    assert main([*of_file, "--strict"]) == 1


def test_pyproject_names_the_file(here: Path) -> None:
    """README.md, Deviations file: `[tool.dlx.check]`, from its own folder."""
    (here / "sub").mkdir()
    (here / "sub/known.toml").write_text(ENTRY)
    (here / FILE).write_text("")
    project = here / "pyproject.toml"
    project.write_text('[tool.dlx.check]\ndeviations = "sub/known.toml"\n')
    assert find(None, here).entries.keys() == {KNOWN}
    project.write_text("[tool.other]\n")
    assert find(None, here).entries == {}
    for wrong in ("deviation = 'sub/known.toml'", "deviations = 3"):
        project.write_text(f"[tool.dlx.check]\n{wrong}\n")
        with pytest.raises(CannotCheck, match=r"\[tool.dlx.check\]"):
            find(None, here)


def test_a_file_is_of_one_target(
    here: Path, of_file: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md, Deviations file: `target` keeps it from other libraries."""
    (here / FILE).write_text(f'target = "mylib"\n{ENTRY}')
    assert main(of_file) == 1
    assert f"{FILE} is about mylib: it is left alone" in capsys.readouterr().out
    assert main([*of_file, "--deviations", FILE]) == 2
    assert "it is about mylib, not numpy" in capsys.readouterr().err
    (here / FILE).write_text(ENTRY)
    assert main(["check", "numpy", "dlx", *ONLY]) == 2
    assert 'add target = "NAME"' in capsys.readouterr().err


def test_deviations_are_written_once_and_without_reasons(
    here: Path, of_file: list[str]
) -> None:
    """README.md, Deviations file: `--write-deviations FILE`."""
    write = ["check", "numpy", *ONLY, "--write-deviations", FILE]
    assert main(write) == 1
    first = (here / FILE).read_text()
    assert tomllib.loads(first)["target"] == "numpy"
    assert tomllib.loads(first)["deviation"] == [
        {"check": KNOWN, "result": "deviates", "reason": "", "link": ""}
    ]
    assert main(write) == 0
    assert (here / FILE).read_text() == first
    assert main(of_file) == 0
    assert main([*of_file, "--strict"]) == 1


def test_what_a_file_has_is_kept_when_deviations_are_added(here: Path) -> None:
    """README.md, Deviations file: comments, and entries of other versions."""
    old = f"# ours\r\n{ENTRY.replace(KNOWN, MET)}versions = '<1'  # end".encode()
    (here / FILE).write_bytes(old)
    write = ["check", "numpy", *ONLY, "--write-deviations", FILE]
    assert main(write) == 1
    assert (here / FILE).read_bytes().startswith(old + b"\n")
    assert Deviations.read(FILE).entries.keys() == {MET, KNOWN}


def test_a_file_to_which_nothing_can_be_added_is_left_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """README.md, Deviations file: an inline array, a folder that is not there."""
    (here / FILE).write_text("deviation = []\n")
    assert main(["check", "numpy", *ONLY, "--write-deviations", FILE]) == 2
    assert (here / FILE).read_text() == "deviation = []\n"
    assert main(["check", "numpy", *ONLY, "--write-deviations", "no/where"]) == 2
    said = capsys.readouterr().err
    assert "entries cannot be added" in said
    assert "no/where: No such file or directory" in said


@given(st.text(), st.text())
def test_whatever_a_target_says_the_written_file_can_be_read(
    name: str, said: str
) -> None:
    """README.md, Deviations file: texts of a target stand in comments."""
    check = next(check for check in CHECKS if check.id == KNOWN)
    result = Result(
        check=check.id,
        role=check.role,
        requirements=(),
        source="",
        statement="",
        expected="",
        level="must",
        derived=False,
        stimulus="legal",
        effect="crash",
        result="crashes",
        text=said,
        record={},
    )
    file = Deviations()
    verdict = file.verdict(result, "1")
    text, count = file.adding(Judgement((verdict,)), name)
    assert count == 1
    assert Deviations.parse(text, FILE).entries[KNOWN].result == "crashes"


def test_the_file_of_the_guide_is_one() -> None:
    """README.md, Deviations file: its check is one of the suite."""
    guide = (Path(__file__).parents[2] / "README.md").read_text()
    [text] = re.findall(r"^```toml\n(.*?)^```$", guide, re.M | re.S)
    file = Deviations.parse(text, FILE)
    assert len(file.entries) == 1
    assert file.unknown == ()
    assert (file.suite, file.target) == ("1.3.0", "mylib")


def test_dlx_has_no_deviations(here: Path) -> None:
    """README.md: dlx itself is a target, with an empty deviations file."""
    (here / "dlx.jsonl").write_text("\n".join(dlx().lines()))
    assert main(["check", "dlx.jsonl", "--strict", "--deviations", "/dev/null"]) == 0
