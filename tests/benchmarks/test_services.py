"""`scripts/bench --services`: the broker beside a forwarder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.services import cases, measure, show
from pubsub.errors import ConfigurationError


def test_each_case_has_a_counterpart_through_the_broker() -> None:
    for rival in (False, True):
        found = cases(rival)
        assert all(case._replace(through="broker") in found for case in found)
    assert {case.through for case in cases(rival=False)} == {"broker", "forwarder"}


def test_a_missing_rival_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"mdbroker\.py"):
        measure(0.1, 1, tmp_path)


@pytest.mark.slow
def test_rates_are_measured_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rates = measure(0.1, 1, None)
    assert all(len(found) == 1 and found[0] > 0 for found in rates.values())
    show(rates, as_json=True)
    assert len(json.loads(capsys.readouterr().out)["services"]) == len(rates)
    show(rates, as_json=False)
    assert "forwarder" in capsys.readouterr().out
