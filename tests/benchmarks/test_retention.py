"""`scripts/bench --retention`: kept messages that go, and topics with settings."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.command import main
from benchmarks.retention import UNITS


@pytest.mark.slow
@pytest.mark.nightly
def test_every_figure_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--dir", str(tmp_path), "--retention", "--secs", "0.01", "--reps", "1"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["retention"]
    assert run.keys() == UNITS.keys()
    assert all(math.isfinite(figure) and figure >= 0 for figure in run.values())
    assert run["records that went"] > 90_000
