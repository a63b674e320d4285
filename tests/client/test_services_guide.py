"""The programs and sessions of docs/how-to/services.md for calls over topics, as typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.broker import Broker

GUIDE = (Path(__file__).parents[2] / "docs/how-to/services.md").read_text()
PAGE, _, _ = GUIDE.partition("\n## Patterns of the ZeroMQ Guide\n")
"""The part about calls over topics; tests/services/test_page.py runs the rest."""
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_services_of_the_page_reply_once_and_again(tmp_path: Path) -> None:
    worker, caller = (text for language, text in FENCED if language == "python")
    (tmp_path / "billing.py").write_text(worker)
    (tmp_path / "shop.py").write_text(caller)
    (tmp_path / "bin").mkdir()
    for name, command in (("pubsub", f"{sys.executable} -m pubsub"), ("python", sys.executable)):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    sessions = "".join(text for language, text in FENCED if not language)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", sessions, re.MULTILINE)
    lines = [re.sub(r" &$", " > log 2>&1 &", command) for command, _ in steps if not command.startswith("export ")]
    broker = Broker(tmp_path / "broker")
    try:
        done = subprocess.run(
            ["bash", "-ec", "\n".join(["trap 'kill $(jobs -p)' EXIT", *lines])],
            cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
            env=os.environ | {
                "PUBSUB_CLIENT_PROXIES": broker.address,
                "XDG_DATA_HOME": str(tmp_path / "data"),
                "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            },
        )  # fmt: skip
    finally:
        broker.close()
    # A reply is printed as it is, without an end of line.
    assert done.stdout.replace("\n", "") == "".join(shown for _, shown in steps).replace("\n", ""), done.stderr
