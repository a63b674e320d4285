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


def shell(directory: Path) -> dict[str, str]:
    """The environment of a shell in which `pubsub` and `python` are those of this environment."""
    programs = directory / "bin"
    programs.mkdir()
    for name, command in (("pubsub", f"{sys.executable} -m pubsub"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    return {name: value for name, value in os.environ.items() if not name.startswith("PUBSUB_")} | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_DATA_HOME": str(directory / "data"),
    }


def typed(page: str, directory: Path) -> str:
    """Type the commands of a how-to page into a shell, and then its programs in Python; return what they print."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "docs/how-to" / page).read_text(), re.MULTILINE | re.DOTALL)
    commands = [line[2:] for language, text in blocks if not language for line in text.splitlines() if line[:2] == "$ "]
    lines = [line for line in commands if not line.startswith("pip ")]
    lines += [f"python - <<'PROGRAM'\n{''.join(text for language, text in blocks if language == 'python')}PROGRAM"]
    (directory / "examples").symlink_to(ROOT / "examples")
    try:
        done = subprocess.run(
            ["bash", "-ec", "\n".join(lines)],
            cwd=directory, env=shell(directory), capture_output=True, text=True, timeout=SPARK_SECONDS, check=False,
        )  # fmt: skip
    finally:
        down = [sys.executable, "-m", "pubsub", "down", "--dir", "cluster"]
        subprocess.run(down, cwd=directory, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.nightly
def test_the_lines_of_the_page_on_delta_archive_and_read_each_message_once(tmp_path: Path) -> None:
    said = typed("archive-to-delta.md", tmp_path)
    assert "1,000 messages in 1 batches" in said
    assert said.count("1000 messages, 1000 different") == 2, "by Iceberg, and by delta-rs"
    assert "[(1000,)]" in said


@pytest.mark.nightly
def test_the_lines_of_the_page_on_pipelines_write_an_order_and_set_another_message_aside(tmp_path: Path) -> None:
    said = typed("pipelines-from-files.md", tmp_path)
    assert "orders.toml: ok" in said
    assert "2 messages in 1 batches" in said
    assert said.splitlines()[-1] == "no order"


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
    environment = shell(tmp_path)
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
