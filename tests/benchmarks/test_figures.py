"""The benchmarks that are commands of their own: each runs, small, and prints its figures. No test asks for speed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.command import main
from benchmarks.replay import UNITS

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow

FIGURES = {
    ("benchmarks/starts.py", "2000"): ["last:10000 ", "after a merge, last:10000 ", "bare, times "],
    ("benchmarks/compaction.py", "200", "10"): ["a round, processor: median ", "200 went in "],
    ("benchmarks/delayed.py", "200"): ["200 rows at each side, all common "],
    ("-m", "benchmarks.families", "20"): ["start of the client: ", "memory of the server: "],
    ("-m", "benchmarks.paired", ".", "--pairs", "2", "--only", "put,round-trip"): [
        "put         server ",
        "round-trip  all ",
    ],
}


EACH_TIME = ("benchmarks/compaction.py", "200", "10"), ("-m", "benchmarks.families", "20")
"""The others run by night."""


@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=() if each in EACH_TIME else pytest.mark.nightly) for each in FIGURES],
    ids=" ".join,
)
def test_a_benchmark_prints_its_figures(command: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    for line in FIGURES[command]:
        assert line in done.stdout


def test_paired_benchmarks_refuse_what_is_no_checkout(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.paired", str(tmp_path)], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 2


@pytest.mark.nightly
def test_replay_has_every_figure_of_every_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--dir", str(tmp_path), "--replay", "--secs", "0.01", "--reps", "2"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert len(facts["replay"]) == 2
    for pair in (*facts["replay"], facts["median"]):
        assert pair.keys() == UNITS.keys()
        assert all(math.isfinite(figure) and figure > 0 for figure in pair.values())
