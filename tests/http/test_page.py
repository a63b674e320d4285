"""The programs of docs/how-to/reliable-requests.md run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/reliable-requests.md").read_text()
READY_SECONDS = 120.0


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def test_the_receiver_the_sender_and_the_session_of_the_page_run_as_shown(tmp_path: Path) -> None:
    port, local = free_port(), free_port()

    def placed(text: str) -> str:
        return re.sub(r":(800[01])\b", lambda found: f":{port if found[1] == '8000' else local}", text)

    application, sender, _ = blocks("python")  # The last one is tried in test_fastapi.
    (session,) = blocks("")
    (tmp_path / "app.py").write_text(application)
    (tmp_path / "sender.py").write_text(placed(sender))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", "XDG_DATA_HOME": str(tmp_path / "data")}
    served = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "app:receiver", "--port", str(port), "--log-level", "warning"],
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            assert served.poll() is None
            assert time.monotonic() < deadline
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/")
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.05)
        done = subprocess.run(
            [sys.executable, "sender.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout in {"{'number': 1}\n2\n", "{'number': 1}\n1\n"}, "the note may be handled behind the job"
        steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE)
        assert len(steps) == 3
        for command, shown in steps:
            typed = placed(command).replace("curl ", "curl -s ")
            typed = typed.replace("pubsub http", f"{sys.executable} -m pubsub http")
            ran = subprocess.run(
                typed, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
            )
            assert ran.stdout.strip() == shown.strip(), command
    finally:
        served.terminate()
        served.wait(timeout=120)
