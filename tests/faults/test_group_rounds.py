"""Some rounds of faults on consumer groups, each effect counted by an auditor of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.forkserver import forking
from tests.faults.group_rounds import Told, run_cluster

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]

KINDS = [
    ["member killed", "scaled"],
    ["directory lost", "primary killed"],
    ["member stopped", "server killed"],
    ["released", "proxy killed"],
    ["power cut", "member closed"],
]


def test_rounds_of_faults_leave_each_effect_once_and_each_second_one_marked(tmp_path: Path) -> None:
    told = Told()
    with forking():
        run_cluster(tmp_path, "day", len(KINDS), told, print, KINDS)
    assert told.objections == []
    assert told.rounds == len(KINDS)
    done = {"scaled up" if kind == "scaled" else kind for kinds in KINDS for kind in kinds}
    assert set(told.faults) == done
    assert told.takeovers >= 1
    for side in ("strict", "open"):
        assert told.figures[f"effects of {side} groups"] >= told.figures[f"puts of {side} groups"] > 100


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 4))
def test_drawn_rounds_of_faults_leave_each_effect_once(tmp_path: Path, seed: int) -> None:
    told = Told()
    with forking():
        run_cluster(tmp_path, f"night {seed}", 15, told, print)
    assert told.objections == []
    assert told.rounds == 15
