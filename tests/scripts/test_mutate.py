"""The list of mistakes fits the code, and `scripts/mutate` names the test that catches one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mutate
import pytest
from mutate import ROOT, Mutant, Tree, Unfit, applied, check, load

MISTAKE = Mutant("one", "pubsub/base/intervals.py", "old", "new", "it is wrong")


def test_every_mistake_fits_the_code_once_and_compiles() -> None:
    mutants = load()
    assert check(mutants) == []
    assert len({one.name for one in mutants}) == len(mutants)
    assert [sum(one.group == group for one in mutants) for group in ("chosen", "blind", "third", "fourth")] == [40] * 4
    for one in mutants:
        compile(applied(one, (ROOT / one.file).read_text()), one.file, "exec")


@pytest.mark.parametrize("source", ["", "old and old", "an ol d one"])
def test_a_mistake_that_does_not_fit_is_an_error_that_says_so(source: str) -> None:
    with pytest.raises(Unfit, match="one: its old text stands"):
        applied(MISTAKE, source)
    assert applied(MISTAKE, "an old one") == "an new one"
    assert len(check([MISTAKE, replace(MISTAKE, file="pubsub/nowhere.py")])) == 2


def test_a_copy_has_new_files_and_no_ignored_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    for name, text in ((".gitignore", "ignored"), ("added", ""), ("new", ""), ("ignored", "")):
        (repository / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    subprocess.run(["git", "add", "added"], cwd=repository, check=True)
    monkeypatch.setattr(mutate, "ROOT", repository)
    Tree(tmp_path / "copy")
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {".gitignore", "added", "new"}


@pytest.mark.slow
def test_a_mistake_is_made_in_a_copy_and_its_test_is_named() -> None:
    (mutant,) = [one for one in load() if one.name == "the milliseconds of before are used again"]
    before = (ROOT / mutant.file).stat()
    command = [sys.executable, str(Path("scripts", "mutate.py")), "--only", mutant.name, "--no-simulate"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert "client/test_numbers.py::test_a_clock_that_went_back_gives_no_number_twice" in done.stdout
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 of 1 were caught")
    assert (ROOT / mutant.file).stat() == before
