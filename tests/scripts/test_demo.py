"""The demo itself, on a short input: processes are killed, and its statement of the outcome is true."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "scripts/demo.py"


def demo(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEMO), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.faults
def test_one_of_each_role_is_killed_and_each_line_is_delivered_once(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"line {number % 7}\n" for number in range(300)))
    done = demo(tmp_path / "lines", "--topic", "seven")
    assert done.returncode == 0, done.stdout + done.stderr
    for role in ("p1", "s1", "publisher", "first"):
        assert len(re.findall(rf"SIGKILL {role} \(pid \d+\) at ", done.stdout)) == 1
    (row,) = re.findall(r"│ seven +│(.*)│\n", done.stdout)
    assert [int(cell.strip().replace(",", "")) for cell in row.split("│")] == [300, 300, 300, 0, 0, 0, 0]
    assert "300 records, " in done.stdout
    assert "every record was delivered once to each subscriber, in order" in done.stdout


@pytest.mark.faults
def test_the_demo_with_keys_has_the_same_result(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"line {number}\n" for number in range(300)))
    done = demo(tmp_path / "lines", "--keys")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("; started again") == 4
    assert "300 records, " in done.stdout
    assert "every record was delivered once to each subscriber, in order" in done.stdout


@pytest.mark.faults
@pytest.mark.parametrize("keys", [pytest.param((), marks=pytest.mark.nightly), ("--keys",)])
def test_a_demo_with_a_standby_survives_the_loss_of_the_primarys_host(tmp_path: Path, keys: tuple[str, ...]) -> None:
    (tmp_path / "lines").write_text("".join(f"line {number}\n" for number in range(2000)))
    done = demo(tmp_path / "lines", "--standby", *keys)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"SIGKILL s1 \(pid \d+\) at .*; its directory deleted, for good", done.stdout)) == 1
    assert done.stdout.count("; started again") == 3
    assert "every record was delivered once to each subscriber, in order" in done.stdout
    waited = re.findall(r"the primary's host: (\w+) waited ([\d.]+) s at most", done.stdout)
    assert sorted(name for name, _ in waited) == ["first", "second"]
    assert all(float(seconds) > 0 for _, seconds in waited)


@pytest.mark.faults
def test_a_single_record_survives_the_death_of_all_four_roles(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("alone\n")
    done = demo(tmp_path / "lines")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("; started again") == 4
    assert "1 record, " in done.stdout


@pytest.mark.faults
def test_a_demo_without_a_file_publishes_a_day_of_a_shop_and_shows_its_progress() -> None:
    leader, terminal = os.openpty()
    command = [sys.executable, str(DEMO), "--records", "600", "--seed", "3"]
    environment = {**os.environ, "COLUMNS": "80"}
    with subprocess.Popen(command, stdout=terminal, stderr=subprocess.PIPE, env=environment) as process:
        os.close(terminal)
        shown = bytearray()
        with contextlib.suppress(OSError):  # The end of a terminal is an error.
            while chunk := os.read(leader, 1 << 16):
                shown += chunk
        os.close(leader)
        assert process.wait(120) == 0, shown
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert "600 records, " in text
    assert all(topic in text for topic in ("orders", "payments", "shipments", "stock"))
    assert re.search(r"delivered to second.*\d+/600", text)


@pytest.mark.parametrize("content", [None, ""])
def test_an_invalid_input_is_one_line(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "lines").write_text(content)
    done = demo(tmp_path / "lines")
    assert done.returncode == 2
    assert done.stderr.startswith("demo: ")
    assert done.stderr.count("\n") == 1
