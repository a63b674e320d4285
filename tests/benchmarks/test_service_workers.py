"""`scripts/bench --workers`: a worker's processor time beside the Guide's."""

from __future__ import annotations

import json
import time

import pytest

from benchmarks.service_workers import KINDS, SIDES, WARM_REQUESTS, Meter, measure, show


def test_the_first_requests_are_not_measured() -> None:
    meter = Meter(2)
    assert not any(meter.take() for _ in range(WARM_REQUESTS + 1))
    began = time.thread_time()
    while time.thread_time() < began + 0.002:
        pass
    assert meter.take()
    assert meter.cost is not None
    assert meter.cost.process_us >= 0.9 * meter.cost.thread_us >= 900


@pytest.mark.slow
def test_each_kind_is_measured_on_both_sides_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    costs = measure(50, 1)
    assert set(costs) == {(kind, side) for kind in KINDS for side in SIDES}
    assert all(0 < cost.thread_us < cost.process_us for (cost,) in costs.values())
    show(costs, as_json=True)
    assert len(json.loads(capsys.readouterr().out)["workers"]) == len(costs)
    show(costs, as_json=False)
    shown = capsys.readouterr().out
    assert all(kind in shown for kind in KINDS)
