"""`pubsub bench`: every measure for a moment, and the form of its output. No test asks for speed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.measures import MEASURES as MORE
from pubsub.cli import main
from pubsub.cli.bench import measures
from pubsub.cli.bench.measures import MEASURES
from pubsub.cli.bench.table import Results, Series
from pubsub.errors import ConfigurationError

ROOM = Path(measures.__file__).parent


@pytest.mark.slow
def test_every_measure_gives_every_figure_in_every_repetition_and_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--secs", "0.02", "--reps", "2", "--sizes", "10,64", "--json"]
    assert main(["bench", "--dir", str(tmp_path), *words]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["secs"], facts["reps"]) == (0.02, 2)
    found = {(one["measure"], one["figure"], one["size"]): one for one in facts["results"]}
    assert {(name, figure, size): one["unit"] for (name, figure, size), one in found.items()} == {
        (measure.name, figure, size): unit
        for measure in MEASURES
        for figure, unit in measure.units.items()
        for size in (10, 64)
    }
    for (name, _, _), one in found.items():
        assert len(one["values"]) == 2
        assert 0 < one["min"] <= one["median"] <= one["max"] < math.inf
        assert ("floor" in one) == (name == "sync-put")
    assert not list(tmp_path.iterdir()), "nothing stays behind"


def test_a_checkout_measures_the_same_figures() -> None:
    more = {measure.name: measure for measure in MORE}
    for measure in MEASURES:
        same = more[measure.name]
        assert (same.run.__qualname__, same.units) == (measure.run.__qualname__, measure.units)


def test_the_room_stays_small() -> None:
    assert sum(len(path.read_text().splitlines()) for path in ROOM.glob("*.py")) <= 600


def test_the_bench_prints_a_table_without_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--dir", str(tmp_path), "--secs", "0.02", "--reps", "1", "--only", "put-1000"]) == 0
    out = capsys.readouterr().out
    assert "measure" in out
    assert "put-1000" in out
    assert "1,024" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "put-7"], "put-1000"),
        (["--sizes", "100,x"], "--sizes 100,x"),
        (["--sizes", "0"], "--sizes 0"),
        (["--secs", "0"], "secs"),
        (["--spark"], "No such option: --spark"),
    ],
)
def test_an_impossible_measure_ends_with_one_line(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *options]) in {2, ConfigurationError.exit_code}
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_ratio_counts_how_many_times_as_good_a_figure_is() -> None:
    rate = Series("put", "rate", 1, "records/s", [10.0, 20.0, 90.0], [], [5.0, 5.0, 5.0])
    latency = Series("put", "p50", 1, "µs", [10.0], [5.0], [20.0])
    assert (rate.ratio, rate.share) == (4.0, None)
    assert (latency.ratio, latency.share) == (2.0, 2.0)


def test_figures_of_zero_are_not_compared() -> None:
    assert Series("large", "idle", 1, "% CPU", [0.0, 2.0, 1.0], [], [1.0, 1.0, 0.0]).ratio == 0.5
    assert Series("large", "idle", 1, "% CPU", [0.0], [], [1.0]).ratio is None


def test_a_floor_belongs_to_the_figures_of_its_unit() -> None:
    results = Results()
    results.add("put", 1, {"p50": "µs", "load": "records/s"}, {"p50": 10.0, "load": 7.0}, 5.0, {"p50": 20.0})
    p50, load = results.facts()
    assert (p50["share"], p50["ratio"]) == (2.0, 2.0)
    assert "floor" not in load
    assert "rival" not in load
