"""The assumptions of a person who has only Python, git and pip."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    "scripts/test",
    "scripts/matrix",
    "scripts/simulate",
    "scripts/docs",
    "scripts/demo",
    "scripts/soak",
    "scripts/http-soak",
    "scripts/commit-msg",
    ".ci/run",
]


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


def test_constraints_pin_all_direct_and_indirect_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["dev"]]
    wanted += project["build-system"]["requires"]
    missing = {plain(re.split(r"[<>=!~ ;\[]", one)[0]) for one in wanted} - set(pins())
    assert missing == set()
    # What only other extras need is not installed everywhere: what the scripts install is followed, and all it needs.
    extras = project["project"]["optional-dependencies"]
    todo = [
        *wanted,
        *extras["connect"],
        *extras["delta"],
        *extras["docs"],
        *extras["http"],
        *extras["lakes"],
        *extras["postgres"],
        *extras["spark"],
    ]
    seen: set[str] = set()
    while todo:
        name = plain(re.split(r"[<>=!~ ;\[(]", todo.pop())[0])
        if name not in seen:
            seen.add(name)
            todo += [one for one in distribution(name).requires or [] if ";" not in one]
    assert seen - set(pins()) == set()


def test_every_pin_can_be_installed_under_the_first_release_of_the_first_python() -> None:
    # pip leaves out what asks for a later one ("No matching distribution found"): Debian 12 has 3.11.2.
    first = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=") + ".0"
    asking = {}
    for name, version in pins().items():
        with suppress(PackageNotFoundError):  # Of extras that are not installed here.
            if (found := distribution(name)).version == version:
                asking[name] = found.metadata["Requires-Python"] or ""
    assert len(asking) > 50
    assert {name: asked for name, asked in asking.items() if not SpecifierSet(asked).contains(first)} == {}


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_can_be_run_and_are_bash(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", ROOT / script], check=True)


def test_ci_runs_the_same_checks_as_a_contributor() -> None:
    *before, last = [line for line in (ROOT / ".ci/run").read_text().splitlines() if not line.startswith("#")]
    assert last == 'exec "$(dirname "${BASH_SOURCE[0]}")/../scripts/test" "$@"'
    # What comes before installs what tests need, and has them not be left out; it runs none.
    assert not any(word in line for line in before for word in ("pytest", "python", "ruff", "mypy"))


def test_every_test_that_a_mark_takes_out_of_one_part_is_in_the_part_of_that_mark() -> None:
    (elsewhere,) = re.findall(r"^faults_elsewhere=\((.*)\)$", (ROOT / "scripts/test").read_text(), re.MULTILINE)
    marked: dict[str, set[Path]] = {"faults": set(), "spark": set()}
    for path in tracked("tests/*.py") - {Path(__file__)}:
        for mark in set(re.findall(r"mark\.(faults|spark)\b", path.read_text())):
            marked[mark].add(path.relative_to(ROOT))
    assert {str(path) for path in marked["spark"] if path.parent != Path("tests/spark")} == set()
    outside = {str(path) for path in marked["faults"] - marked["spark"] if path.parent != Path("tests/faults")}
    assert outside == set(elsewhere.split())


def test_each_folder_with_its_own_part_is_excluded_from_the_rest_and_run() -> None:
    script = (ROOT / "scripts/test").read_text()
    (apart,) = re.findall(r"^apart=\((.*)\)$", script, re.MULTILINE)
    groups = dict(re.findall(r"^(of_\w+)=\((.*)\)$", script, re.MULTILINE))
    assert re.findall(r"\$\{(\w+)\[@\]/#/--ignore=\}", apart) == sorted(groups)
    folders = [folder for group in groups.values() for folder in group.split()]
    assert len(set(folders)) == len(folders)
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []
    for name in groups:  # Once for --quick, once for all.
        assert len(re.findall(rf'^    part .* pytest "\$\{{{name}\[@\]\}}" -m "\$rest"', script, re.MULTILINE)) == 2


@pytest.mark.parametrize("name", ["spark", "simulation"])
def test_a_second_part_is_excluded_from_the_first(name: str) -> None:
    script = (ROOT / "scripts/test").read_text()
    (apart,) = re.findall(rf"^{name}_apart=\((.*)\)$", script, re.MULTILINE)
    assert [path for path in apart.split() if not (ROOT / path).is_file()] == []
    assert script.count(f'"${{{name}_apart[@]/#/--ignore=}}"') == script.count(f'"${{{name}_apart[@]}}"') == 1


@pytest.mark.parametrize("room", ["proxy", "server", "client", "config"])
def test_the_links_at_the_top_level_exist(room: str) -> None:
    assert (ROOT / room).is_symlink()
    assert (ROOT / room).resolve() == ROOT / "pubsub" / room


def test_exit_codes_are_documented() -> None:
    import pubsub.errors
    import pubsub.http.errors
    import pubsub.services.errors
    from pubsub import console

    table = (ROOT / "docs/commands.md").read_text()
    codes = {
        value.exit_code
        for room in (pubsub.errors, pubsub.http.errors, pubsub.services.errors)
        for value in vars(room).values()
        if isinstance(value, type) and hasattr(value, "exit_code")
    }
    codes |= {value for name, value in vars(console).items() if name.startswith("EXIT_")}
    assert [code for code in sorted(codes) if f"\n| {code} | " not in table] == []


def tracked(*patterns: str) -> set[Path]:
    """The files that git knows, by its own word."""
    said = subprocess.run(["git", "ls-files", "--", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return {ROOT / line for line in said.stdout.splitlines()}


def test_linter_and_formatter_check_every_python_file() -> None:
    ruff = Path(sys.executable).parent / "ruff"
    said = subprocess.run([ruff, "check", "--show-files", "."], cwd=ROOT, check=True, capture_output=True, text=True)
    seen = {Path(line) for line in said.stdout.splitlines()}
    assert tracked("*.py", "*.pyi") - seen == set()
    # Formatting takes the same files; `--exclude` and `force-exclude` of its own would show here.
    assert "exclude" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"].get("format", {})


def test_the_type_checker_checks_every_module_of_the_package() -> None:
    # What `mypy` looks at when it is called as scripts/test calls it, by its own word, without having it look.
    program = (
        "from mypy.main import process_options; print(*(source.path for source in process_options([])[0]), sep='\\n')"
    )
    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert {ROOT / line for line in said.stdout.splitlines()} == tracked("pubsub/*.py", "benchmarks/*.py")


SUBJECT_CHARACTERS_MAX = 72
SUBJECTS_SINCE = "50afd09"
SUBJECTS_SINCE_TIME = "2026-11-28T17:30:05+00:00"
"""The first commit after which every subject is short enough; earlier ones stay as they are."""

WRITTEN_BY_GIT = ("fixup!", "squash!", "amend!", "Merge ", "Revert ")


def test_no_subject_of_a_commit_is_longer_than_the_hook_allows() -> None:
    # An archive has no history, and a shallow clone may not have the first commit: then its time limits the rest.
    if not (ROOT / ".git").exists():
        return
    known = subprocess.run(["git", "cat-file", "-e", SUBJECTS_SINCE], cwd=ROOT, capture_output=True, check=False)
    commits = [f"{SUBJECTS_SINCE}..HEAD"] if known.returncode == 0 else [f"--since={SUBJECTS_SINCE_TIME}", "HEAD"]
    said = subprocess.run(
        ["git", "log", "--no-merges", "--format=%s", *commits], cwd=ROOT, check=True, capture_output=True, text=True
    )
    subjects = [line for line in said.stdout.splitlines() if not line.startswith(WRITTEN_BY_GIT)]
    assert [one for one in subjects if len(one) > SUBJECT_CHARACTERS_MAX] == []


@pytest.mark.parametrize(
    ("message", "accepted"),
    [
        ("x" * SUBJECT_CHARACTERS_MAX + "\n", True),
        ("é" * SUBJECT_CHARACTERS_MAX + "\n", True),
        ("x" * (SUBJECT_CHARACTERS_MAX + 1) + "\n", False),
        ("\n# a comment that is longer than a subject may be, and that git takes out again\nshort\n", True),
        ("short\n\n" + "a body is as wide as it wants to be; the hook looks at the subject alone, " * 2, True),
        ("Merge branch '" + "x" * SUBJECT_CHARACTERS_MAX + "'\n", True),
    ],
)
def test_the_hook_refuses_a_subject_that_is_too_long(message: str, accepted: bool, tmp_path: Path) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message)
    done = subprocess.run([ROOT / "scripts/commit-msg", file], check=False, capture_output=True, text=True)
    assert (done.returncode == 0) is accepted, done.stderr
    assert accepted or "72 are allowed" in done.stderr


def test_the_guide_names_the_hook() -> None:
    assert "scripts/commit-msg" in (ROOT / "CONTRIBUTING.md").read_text()
