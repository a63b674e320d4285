"""Rows through two queries on a standalone cluster, with each kind of fault once (`tests/spark/scale.py`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.cluster import until
from tests.spark.scale import COPY, TOPICS, Scale

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(3600)]

ROWS = 100_000


def test_each_row_is_in_the_topic_and_in_the_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    scale = Scale(tmp_path / "scale", ROWS, 1, 5_000)
    try:
        scale.run(6)
        right = {"lost": 0, "doubled": 0, "foreign": 0}
        assert (scale.count_topic(), scale.count_files()) == (right, right)
        assert scale.faults == {"kill_driver": 2, "kill_executor": 2, "fail_over": 1, "move": 1}
        # Each source topic had half of the rows; what both queries have acknowledged is deleted.
        until(lambda: all(scale.stored()[topic] < ROWS // 10 for topic in TOPICS), "the source topics are trimmed")
        assert scale.stored()[COPY] == ROWS, "its reader has acknowledged nothing"
    finally:
        scale.members.__exit__()
