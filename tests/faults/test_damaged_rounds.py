"""Damaged stores by the commands: processes do as `pubsub server check` predicts, beside a sound topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.damaged_rounds import tried
from tests.server.damages import Made, workshop


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    with workshop() as (store, _):
        yield store


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 10))
def test_processes_do_as_check_predicts(made: Made, tmp_path: Path, seed: int) -> None:
    what, _, findings = tried(made, tmp_path, seed)
    assert findings == [], what
