"""The soak itself, for seconds: all processes are started, disturbed and healed, and its output is readable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import soak

from tests.faults.cast import Cast
from tests.faults.cluster import ROOT, until
from tests.faults.sampling import Sample

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(
    "keys", [pytest.param([], marks=pytest.mark.nightly, id="without keys"), pytest.param(["--keys"], id="with keys")]
)
def test_a_short_soak_has_traffic_and_faults_and_no_violation(tmp_path: Path, keys: list[str]) -> None:
    words = ["--minutes", "0.1", "--seed", "1", "--dir", str(tmp_path / "soak"), *keys]
    ended = subprocess.run(
        [sys.executable, ROOT / "scripts" / "soak.py", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"seed 1: {' '.join(['scripts/soak --minutes 0.1 --seed 1', *keys])}; everything" in ended.stdout
    assert "lost 0, repeated 0, order 0, silence 0, foreign 0, halves 0" in ended.stdout
    told = json.loads((tmp_path / "soak" / "soak.json").read_text())
    figures = told["figures"]
    assert told["objections"] == []
    assert told["outcomes"].get("reloads", 0) >= (5 if keys else 0)
    assert sum(told["faults"].values()) >= 1
    assert all(count > 20 for count in figures["put"].values())
    assert all(count > 100 for count in figures["delivered"].values())
    assert figures["memory"]["s3"]["end"] > 1 << 20
    assert figures["files"]["s3"]["end"] > 1 << 16
    assert not (tmp_path / "soak" / "run").exists()


def test_a_process_that_ends_by_itself_is_reported_and_restarted(tmp_path: Path) -> None:
    with Cast(tmp_path, 1) as cast:
        cast.look_after()
        assert cast.objections == []
        victims = [cast.cluster.servers[0], cast.publishers[0]]
        for victim in victims:
            victim.kill()
        cast.look_after()
        assert [one.kind for one in cast.objections] == ["died", "died"]
        victims[0].ready()
        before = cast.count(victims[1])
        until(lambda: cast.count(victims[1]) > before, "it puts again")


def test_memory_and_stores_beyond_their_bounds_are_reported_once() -> None:
    small = Sample(1.0, memory={"s1": 40 << 20}, files={"s1/server.db": 40 << 20, "clients/a.db": 1 << 30})
    large = Sample(2.0, memory={"s1": 400 << 20}, files={"s1/server.db": 400 << 20})
    assert soak.grown([small, small]) == []
    assert [one.kind for one in soak.grown([small, large, large])] == ["memory", "store"]
