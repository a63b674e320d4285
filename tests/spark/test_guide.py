"""The lines of docs/spark.md run, and processes killed in them are killed in mid-flight."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.cluster import SPARK_SECONDS

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "spark.md").read_text()

pytestmark = pytest.mark.spark


@pytest.mark.nightly
def test_the_ten_lines_of_the_guide_count_each_message_once(tmp_path: Path) -> None:
    """With a tenth of their messages."""
    (block,) = re.findall(r"^```bash\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    for said, here in (("200000", "20000"), ("200001", "20001"), ("300000", "30000"), ("--batch 2000", "--batch 200")):
        assert said in block
        block = block.replace(said, here)
    lines = block.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("python3 -m venv"), "the first line installs, which this environment has done"
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in (("pubsub", f"{sys.executable} -m pubsub"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PUBSUB_")} | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -m", *lines[1:], "wait"])],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SPARK_SECONDS, check=False,
    )  # fmt: skip
    said = done.stdout.splitlines()
    assert "30000 30000" in said, done.stderr[-3000:]
    (second,) = [int(line.split()[0].replace(",", "")) for line in said if line.endswith("archived to ./archive")]
    assert 10_000 < second < 30_000, "the first run was not killed in the middle"


def test_every_link_of_the_guide_leads_somewhere() -> None:
    for name in re.findall(r"\]\(([^)#]+)", GUIDE):
        assert (ROOT / "docs" / name).exists(), name
