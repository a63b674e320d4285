"""Reliable HTTP with real processes: SIGKILL at every commit, send and answer, of either side."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.http_dying import RECEIVER, SENDER
from tests.faults.http_rig import Rig

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("point", [*RECEIVER, *SENDER])
def test_a_process_killed_at_any_point_continues_without_loss_or_repetition(tmp_path: Path, point: str) -> None:
    with Rig(tmp_path, count=9, at_once=3) as rig:
        rig.receiver.start(f"{point}:2" if point in RECEIVER else "")
        rig.sender.start(f"{point}:2" if point in SENDER else "")
        rig.finish(90.0)
        rig.settle()
        assert (rig.receiver if point in RECEIVER else rig.sender).deaths >= 1, "it did not die there"
        assert rig.objections() == []
