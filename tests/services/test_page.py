"""The patterns on docs/how-to/services.md run as typed, and print the text that the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.cluster import ROOT, until
from tests.ports import free_port

PAGE = (ROOT / "docs/how-to/services.md").read_text().partition("\n## Patterns of the ZeroMQ Guide\n")[2]
SESSIONS = dict(re.findall(r"^\*\*([\w ]+)\.\*\* [^`]*?\n\n```\n(\$ pubsub .*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
READY = re.compile(r"^(?!\d{4}-).* (ready|serves)\b", re.MULTILINE)
"""What a process says once it is there, not a line of its log."""


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(source, "services.md", "exec"), {})
    assert capsys.readouterr().out == "b'HELLO'\n[b'0', b'1', b'2']\n"


def test_every_pattern_has_its_lines() -> None:
    patterns = (
        "Lazy Pirate, Simple Pirate, Paranoid Pirate, Majordomo, Titanic, Freelance, Binary Star, Calls over topics"
    )
    assert list(SESSIONS) == patterns.split(", ")
    assert all(len(lines.splitlines()) <= 10 for lines in SESSIONS.values())


class Session:
    """Runs the lines of one session; what was started in the background ends with it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._background: list[subprocess.Popen[bytes]] = []
        self._environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def run(self, command: str) -> str:
        words = command.replace("pubsub", f"{sys.executable} -m pubsub", 1)
        if not words.endswith("&"):
            done = subprocess.run(
                words, shell=True, capture_output=True, cwd=self._directory, env=self._environment, timeout=100,
                check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr.decode()
            return done.stdout.decode()
        output = self._directory / f"{len(self._background)}.out"
        with output.open("wb") as out:
            self._background.append(
                subprocess.Popen(
                    ["bash", "-c", "exec " + words[:-1]],
                    stdout=out,
                    stderr=out,
                    cwd=self._directory,
                    env=self._environment,
                )
            )
        until(lambda: READY.search(output.read_text()) and output.read_text().endswith("\n"), f"{command} is ready")
        return "".join(line + "\n" for line in output.read_text().splitlines() if READY.search(line))

    def end(self) -> None:
        for process in self._background:
            process.terminate()
        for process in self._background:
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
def test_each_session_prints_the_shown_output(name: str, tmp_path: Path) -> None:
    lines = SESSIONS[name]
    for port in sorted(set(re.findall(r":(55\d\d)", lines))):
        lines = lines.replace(f":{port}", f":{free_port()}")
    session = Session(tmp_path)
    try:
        for step in re.split(r"^\$ ", lines, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            said = session.run(command)
            assert said == shown or said + "\n" == shown, command
    finally:
        session.end()
