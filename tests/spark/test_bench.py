"""`scripts/bench --spark`: every measure for a moment, and the form of its output. No test asks for speed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.command import main
from benchmarks.spark import measures

pytestmark = pytest.mark.spark


@pytest.mark.nightly
def test_every_measure_gives_every_figure_that_it_names(
    session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--spark", "--json", "--dir", str(tmp_path), "--secs", "0.02", "--reps", "1", "--sizes", "64"]
    assert main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    found = {(one["measure"], one["figure"]): one for one in facts["results"]}
    with measures() as known:
        assert found.keys() == {(measure.name, figure) for measure in known for figure in measure.units}
    for one in found.values():
        assert math.isfinite(one["median"])
        assert one["median"] >= 0
    assert not list(tmp_path.iterdir()), "nothing stays behind"


def test_an_unknown_measure_is_refused_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--spark", "--only", "sync-put"]) == 8
    assert "choose from spark-noop, spark-parquet, spark-delta, spark-sink" in capsys.readouterr().err
    assert main(["--spark", "--against", "redis"]) == 8
    assert "one of them at a time" in capsys.readouterr().err
