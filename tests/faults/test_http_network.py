"""Reliable HTTP with real processes over a network that cuts, delays, doubles and loses either direction; long jobs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.faults.cluster import until
from tests.faults.http_rig import Rig

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(
    ("which", "way"),
    [
        ("up", "up"),
        ("back", "down"),
        pytest.param("up", "down", marks=pytest.mark.nightly),
        pytest.param("back", "up", marks=pytest.mark.nightly),
    ],
)
def test_messages_lost_in_one_direction_are_sent_again(tmp_path: Path, which: str, way: str) -> None:
    """Of the requests and answers, and of the results and theirs."""
    with Rig(tmp_path, count=12) as rig:
        relay = getattr(rig, which)
        relay.silent = {way}
        rig.receiver.start()
        rig.sender.start()
        until(lambda: any(pair.lost for pair in relay._pairs), "something is lost", seconds=60.0)
        relay.heal()
        rig.finish(120.0)
        rig.settle()
        assert rig.objections() == []


def test_connections_that_are_cut_in_the_midst_are_opened_again(tmp_path: Path) -> None:
    stop = threading.Event()
    with Rig(tmp_path, count=30) as rig:
        rig.up.delay = rig.back.delay = 0.02
        rig.receiver.start()
        rig.sender.start()

        def cut() -> None:
            while not stop.wait(0.4):
                for relay in (rig.up, rig.back):
                    relay.cut()
                    relay.heal()
                    relay.delay = 0.02

        cutting = threading.Thread(target=cut)
        cutting.start()
        try:
            rig.finish(180.0)
        finally:
            stop.set()
            cutting.join()
        rig.settle()
        assert rig.objections() == []


def test_everything_that_was_ever_sent_may_come_again_when_all_is_over(tmp_path: Path) -> None:
    with Rig(tmp_path, count=12) as rig:
        rig.receiver.start()
        rig.sender.start()
        rig.finish(90.0)
        assert rig.up.repeat(1000) > 0
        rig.settle()
        assert rig.objections() == []


def test_a_job_that_takes_longer_than_any_patience_with_one_request_ends_once(tmp_path: Path) -> None:
    """A try of the sender is given 3 s; a job here takes twice that, and its receiver is killed in the midst of one."""
    with Rig(tmp_path, count=6, at_once=6, job_seconds=6.0) as rig:
        rig.receiver.start()
        rig.sender.start()
        until(lambda: rig.record.exists() and len(rig.record.read_text().splitlines()) >= 4, "all but the jobs")
        rig.receiver.kill()
        rig.finish(120.0)
        rig.settle()
        assert rig.receiver.deaths >= 1
        assert rig.objections() == []
