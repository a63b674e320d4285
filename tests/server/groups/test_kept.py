"""Records that a member has claimed stay, whatever the settings of their topic say (groups.md, GR20)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.protocol.group_bodies import Range
from tests.server.groups.workers import fill, filled, log_of
from tests.server.stage import Stage
from tests.server.test_settings import configure


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Stage]:
    """A server that lets a record go after some seconds."""
    stage = Stage(tmp_path, retention_hold_seconds=8.0, skew_seconds=0.0)
    yield stage
    stage.close()


@pytest.mark.parametrize(("mode", "name"), [("shared", "%billing"), ("keyed", "%billing:0")])
def test_a_group_is_named_as_long_as_its_members_hold_records_beyond_keep(small: Stage, mode: str, name: str) -> None:
    one = filled(small, 5, mode, parts=int(mode == "keyed"))
    configure(small, keep="1m")
    (held,) = one.work(5).held
    for _ in range(40):
        small.sleep(3)
        one.work(0, keep=[held])
    topic = small.core.state.topics["t"]
    assert (topic.not_let_go, topic.open.low) == (f"subscriber {name}", 1)
    one.work(0, done=[held])
    small.sleep(120)
    assert (topic.not_let_go, topic.open.low) == ("", 6)


def test_compaction_leaves_superseded_records_that_a_member_has_claimed(small: Stage) -> None:
    one = filled(small, 3, keys=1)
    configure(small, keep="latest")
    log = log_of(small)
    assert one.work(3).held == (Range(log, 1, 4),)
    fill(small, 4, 4, keys=1)
    small.sleep(200)
    topic = small.core.state.topics["t"]
    assert (topic.not_let_go, topic.open.low) == ("subscriber %billing", 1)
    one.work(0)
    assert one.work(3).bodies == [b"1", b"2", b"3"]
    one.work(0, done=[Range(log, 1, 4)])
    small.sleep(4_000)
    assert (topic.not_let_go, topic.open.low) == ("", 4)
