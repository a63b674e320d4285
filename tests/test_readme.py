"""Every line that the README shows runs, and those that let a client in."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs/commands.md").read_text()


def blocks(language: str, page: str = README) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = blocks("python")
    exec(compile(source, "README.md", "exec"), {})
    assert capsys.readouterr().out == "orders b'first'\n1\n"


@pytest.mark.slow
def test_the_install_lines_work_from_a_clone(tmp_path: Path) -> None:
    """Nothing is fetched: packages that it needs, and its build backend, are those of this environment."""
    (block,) = blocks("sh")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PUBSUB", "PIP", "PYTHON"))
    }
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": sysconfig.get_path("purelib")}
    environment |= {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}  # 0: no isolation.
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    script = f"set -e\n{block.replace('REPOSITORY', shlex.quote(str(ROOT)))}\ncommand -v pubsub\npubsub --version\n"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(tmp_path / "pirate-pubsub/.venv/bin/pubsub") in done.stdout
    assert re.search(r"^pubsub \d+\.\d+\.\d+$", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_the_shell_session_runs_as_pasted_and_prints_the_shown_output(tmp_path: Path) -> None:
    (session,) = [block for block in blocks("") if "pubsub up" in block]
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE)
    script = f'set -e\npubsub() {{ "{sys.executable}" -m pubsub "$@"; }}\n' + "\n".join(command for command, _ in steps)
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    environment.pop("PUBSUB_PROXIES_FILE", None)
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    finally:
        down = [sys.executable, "-m", "pubsub", "down", "--dir", "cluster"]
        subprocess.run(down, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    place = 0
    for _, shown in steps:
        assert shown in done.stdout[place:]
        place += done.stdout[place:].index(shown) + len(shown)
    assert "2 of 2" in done.stdout, "status was asked of the whole cluster"
    assert "stopped the cluster in cluster" in done.stdout[place:]


@pytest.mark.slow
def test_the_two_commands_for_a_new_client_authorize_it(tmp_path: Path) -> None:
    (session,) = [block for block in blocks("", COMMANDS) if "pubsub keys new" in block]
    new, authorize = re.findall(r"^\$ pubsub (.*)$", session, re.MULTILINE)
    (tmp_path / "cluster").mkdir()  # As `pubsub up --dir cluster` leaves it.
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}

    def run(words: str) -> str:
        command = [sys.executable, "-m", "pubsub", *words.split()]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    made = run(new)
    shown = re.search(r"^client carol (pk_\S+)$", session, re.MULTILINE)
    its = re.fullmatch(r"client carol (pk_\S+)\n", made)
    assert shown is not None
    assert its is not None
    run(authorize.replace(shown[1], its[1]))
    assert its[1] in (tmp_path / "cluster" / "authorized").read_text()


def test_every_link_to_a_file_leads_somewhere() -> None:
    for name in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / name.partition("#")[0]).exists(), name
    for name in re.findall(r"\./(scripts/[a-z]+)", README):
        assert os.access(ROOT / name, os.X_OK), name
