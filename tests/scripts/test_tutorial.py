"""docs/tutorial.md, typed from top to bottom: its files are saved, its commands run, and print the shown output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.shells import installed

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = re.findall(r"Save this\s+as `([\w.]+)`:\n\n```python\n", PAGE)
PROGRAMS = [text for language, text in FENCED.findall(PAGE) if language == "python"]
SESSIONS = [text for language, text in FENCED.findall(PAGE) if language == ""]
STEP = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
MARK = "the next command"


def steps() -> list[tuple[str, str]]:
    """Each command, with what the page shows of its output."""
    return [step for session in SESSIONS for step in STEP.findall(session)]


def test_no_line_of_the_page_is_omitted() -> None:
    assert NAMES == ["billing.py", "shop.py", "together.py", "packer.py", "packed.py"]
    assert PAGE.count("```") == 2 * (len(NAMES) + len(SESSIONS)) == 2 * len(FENCED.findall(PAGE))
    assert len(steps()) == sum(line.startswith("$ ") for line in PAGE.splitlines()) == 26


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tutorial_runs_as_typed_and_prints_the_shown_output(tmp_path: Path) -> None:
    for name, source in zip(NAMES, PROGRAMS, strict=True):
        (tmp_path / name).write_text(source)
    (tmp_path / "bin").mkdir()
    # As programs of their own, not functions: `kill` must meet what runs in the background.
    (tmp_path / "bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin/python").chmod(0o755)
    typed = "".join(f"echo '{MARK}'\n{command}\n" for command, _ in steps())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PUBSUB_")} | {
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }
    with installed(tmp_path / "bin/pubsub"):
        try:
            done = subprocess.run(
                ["bash", "-ec", typed],
                cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280, check=False,
            )  # fmt: skip
        finally:
            down = [sys.executable, "-m", "pubsub", "down", "--dir", "cluster"]
            subprocess.run(down, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.split(f"{MARK}\n")[1:]
    for (command, shown), output in zip(steps(), printed, strict=True):
        assert output == shown or (not shown and command.startswith("pubsub ")), command
