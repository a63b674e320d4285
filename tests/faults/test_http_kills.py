"""Reliable HTTP with real processes: SIGKILL at every commit, send and answer, of either side."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.http_dying import RECEIVER, SENDER
from tests.faults.http_rig import Rig

pytestmark = pytest.mark.faults


EACH_TIME = (
    "request is stored",
    "receipt is written",
    "receipt is committed",
    "answer is out",
    "result is answered",
    "request is in the outbox",
    "confirmation is noted",
    "result is stored",
)
"""The points before and after the commits; the other ones are for the night."""


@pytest.mark.parametrize(
    "point",
    [pytest.param(point, marks=() if point in EACH_TIME else pytest.mark.nightly) for point in (*RECEIVER, *SENDER)],
)
def test_a_process_killed_at_any_point_continues_without_loss_or_repetition(tmp_path: Path, point: str) -> None:
    with Rig(tmp_path, count=9, at_once=3) as rig:
        rig.receiver.start(f"{point}:2" if point in RECEIVER else "")
        rig.sender.start(f"{point}:2" if point in SENDER else "")
        rig.finish(90.0)
        rig.settle()
        assert (rig.receiver if point in RECEIVER else rig.sender).deaths >= 1, "it did not die there"
        assert rig.objections() == []
