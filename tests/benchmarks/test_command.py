"""`python -m benchmarks`: every measure for a moment, and the form of its output. No test asks for speed."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.command import main
from benchmarks.measures import MEASURES
from pubsub.errors import ConfigurationError


def bench(capsys: pytest.CaptureFixture[str], directory: Path, *options: str) -> dict[str, Any]:
    code = main(["--json", "--dir", str(directory), *options])
    out, err = capsys.readouterr()
    assert code == 0, err
    facts: dict[str, Any] = json.loads(out)
    return facts


@pytest.mark.slow
def test_every_measure_gives_every_figure_that_it_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = bench(capsys, tmp_path, "--secs", "0.02", "--reps", "1", "--sizes", "64")
    found = {(one["measure"], one["figure"]): one for one in facts["results"]}
    wanted = {(measure.name, figure): unit for measure in MEASURES for figure, unit in measure.units.items()}
    assert found.keys() == wanted.keys()
    for key, one in found.items():
        assert one["unit"] == wanted[key]
        assert one["size"] == 64
        assert math.isfinite(one["median"])
        # A message may be with its subscriber before the put's own task has its turn again.
        assert one["median"] >= 0 or key == ("delivery-busy", "over the put")
        assert one["values"] == [one["median"]]
    assert not list(tmp_path.iterdir()), "nothing stays behind"


@pytest.mark.slow
def test_repetitions_and_sizes_are_interleaved_and_have_floors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = bench(
        capsys, tmp_path, "--secs", "0.02", "--reps", "2", "--sizes", "10,20", "--only", "sync-put,put-100"
    )  # fmt: skip
    assert (facts["secs"], facts["reps"]) == (0.02, 2)
    assert {(one["measure"], one["figure"], one["size"]) for one in facts["results"]} == {
        ("sync-put", figure, size) for figure in ("p50", "p99") for size in (10, 20)
    } | {("put-100", "rate", size) for size in (10, 20)}
    for one in facts["results"]:
        assert len(one["values"]) == len(one["floor"]["values"]) == 2
        assert one["min"] <= one["median"] <= one["max"]
        shares = [value / floor for value, floor in zip(one["values"], one["floor"]["values"], strict=True)]
        assert one["share"] == pytest.approx(sum(shares) / 2)


@pytest.mark.slow
@pytest.mark.nightly
def test_each_figure_with_keys_is_beside_the_one_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_CLIENT_KEY_FILE", "of another cluster")
    monkeypatch.setenv("PUBSUB_AUTHORIZED", "of another cluster")
    measures = ("sync-put", "end-to-end", "fan-out", "delivery", "topics", "stopped", "large")
    only = ("--only", ",".join(measures), "--sizes", "64", "--secs", "0.02", "--reps", "1")
    facts = bench(capsys, tmp_path, "--keys", *only)
    assert facts["keys"] is True
    assert {one["measure"] for one in facts["results"]} == set(measures)
    for one in facts["results"]:
        assert len(one["values"]) == len(one["rival"]["values"]) >= 1
    assert not list(tmp_path.iterdir()), "no key stays behind"


@pytest.mark.slow
@pytest.mark.nightly
def test_each_figure_with_a_standby_is_beside_the_one_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.standby import STANDBY_MEASURES

    facts = bench(capsys, tmp_path, "--standby", "--sizes", "64", "--secs", "0.02", "--reps", "1")
    assert facts["standby"] is True
    found = {(one["measure"], one["figure"]): one for one in facts["results"]}
    assert found.keys() == {(measure.name, figure) for measure in STANDBY_MEASURES for figure in measure.units}
    for (measure, _), one in found.items():
        assert ("rival" in one) == (measure not in {"killed", "host-gone", "switch"})
        assert one["median"] >= 0
    assert not list(tmp_path.iterdir()), "nothing stays behind"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "put-7"], "put-1000"),
        (["--sizes", "100,x"], "--sizes 100,x"),
        (["--sizes", "0"], "--sizes 0"),
        (["--against", "sqlite"], "only redis"),
        (["--keys", "--spark"], "--keys is measured beside the same without keys"),
        (["--standby", "--keys"], "--standby is measured beside the same without"),
        (["--secs", "0"], "secs"),
    ],
)
def test_an_impossible_measure_ends_with_one_line(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) in {2, ConfigurationError.exit_code}
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_missing_redis_is_reported_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert main(["--against", "redis"]) == ConfigurationError.exit_code
    assert "there is no redis-server on the PATH" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["redis", "hiredis"])
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/redis-server")
    # hiredis too: without it redis-py parses in Python, and what is compared with would be slower than it is.
    monkeypatch.setitem(sys.modules, "redis", ModuleType("redis") if missing == "hiredis" else None)
    monkeypatch.setitem(sys.modules, "hiredis", None)
    assert main(["--against", "redis"]) == ConfigurationError.exit_code
    err = capsys.readouterr().err
    assert "pip install '.[bench]' in a clone" in err
    assert f" {missing} is not installed" in err


@pytest.mark.slow
@pytest.mark.nightly
def test_a_gateway_is_measured_beside_a_server_that_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = bench(capsys, tmp_path, "--http", "--secs", "0.05", "--reps", "1", "--sizes", "64")
    found = {one["measure"]: one for one in facts["results"]}
    assert found.keys() == {"http-post", "http-keyed", "http-one", "http-lines", "http-poll"}
    assert all(one["median"] > 0 for one in found.values())
    assert all(one["floor"]["median"] > 0 for name, one in found.items() if name != "http-poll")
