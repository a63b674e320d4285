"""What a person who has only Python, git and pip relies on."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ["scripts/test", "scripts/demo", "scripts/soak", ".ci/run"]


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_constraints_are_exact_versions_and_name_no_place() -> None:
    assert all(
        re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) and re.fullmatch(r"[0-9][0-9a-z.]*", pins()[name]) for name in pins()
    )
    assert "://" not in (ROOT / "constraints.txt").read_text()


def test_constraints_pin_everything_that_is_needed_and_what_that_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["dev"]]
    wanted += project["build-system"]["requires"]
    missing = {plain(re.split(r"[<>=!~ ;\[]", one)[0]) for one in wanted} - set(pins())
    assert missing == set()
    # What only other extras need is not installed everywhere: what the scripts install is followed, and all it needs.
    todo = [*wanted, *project["project"]["optional-dependencies"]["spark"]]
    seen: set[str] = set()
    while todo:
        name = plain(re.split(r"[<>=!~ ;\[(]", todo.pop())[0])
        if name not in seen:
            seen.add(name)
            todo += [one for one in distribution(name).requires or [] if ";" not in one]
    assert seen - set(pins()) == set()


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_can_be_run_and_are_bash(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / script], check=True)


def test_ci_runs_the_same_checks_as_a_contributor() -> None:
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) == 1
    assert "scripts/test" in lines[0]


@pytest.mark.parametrize("room", ["proxy", "server", "client", "config"])
def test_the_rooms_are_seen_at_the_top_level(room: str) -> None:
    assert (ROOT / room).is_symlink()
    assert (ROOT / room).resolve() == ROOT / "pubsub" / room


def test_exit_codes_are_documented() -> None:
    import pubsub.errors
    from pubsub import console

    table = (ROOT / "docs/commands.md").read_text()
    codes = {
        value.exit_code
        for value in vars(pubsub.errors).values()
        if isinstance(value, type) and hasattr(value, "exit_code")
    }
    codes |= {value for name, value in vars(console).items() if name.startswith("EXIT_")}
    assert [code for code in sorted(codes) if f"\n| {code} | " not in table] == []
