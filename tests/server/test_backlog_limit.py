"""Topics near `backlog_bytes_max`: when they are found, and how long they are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.protocol import Outcome
from pubsub.server.upkeep import backlog_limit
from pubsub.server.upkeep.backlog_limit import LOOK_SECONDS, WARNING_SECONDS
from tests.server.stage import Stage

LIMIT = 10_000
STEP = 1_000
"""Bytes of one message, a tenth of the limit with its frame."""


class Filled(Stage):
    """A server with one topic, and a subscriber that is away beside one that is not."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, backlog_bytes_max=LIMIT)
        self.subscribe("away", "t", 5)
        self.last = 0

    def fill(self, share: float) -> None:
        """Put until the backlog has passed a share of the limit."""
        while self.share() <= share:
            self.last += 1
            assert self.put("t", self.last, [b"x" * STEP], previous=self.last - 1).outcome is Outcome.SUCCESS
            self.group_commit.log_backlogs()

    def share(self) -> float:
        topic = self.core.state.topics.get("t")
        return 0.0 if topic is None else topic.backlog_bytes / LIMIT

    def wait(self, seconds: float) -> None:
        self.sleep(seconds)
        self.loop()
        self.group_commit.log_backlogs()

    def take(self, offset: int) -> None:
        """Acknowledge the messages up to an offset for the subscriber that is away."""
        log = self.core.state.topics["t"].open.id
        self.get("away", "t", None, 5)
        self.get("away", "t", (log, offset), 5)


@pytest.fixture
def stage(tmp_path: Path) -> Filled:
    return Filled(tmp_path)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]


def test_a_topic_above_the_share_is_named_with_its_subscriber_in_one_warning(
    stage: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    stage.fill(0.7)
    stage.wait(LOOK_SECONDS)
    assert not stage.core.backlogs.watched
    assert warnings(caplog) == []
    stage.fill(0.8)
    (found,) = stage.core.backlogs.watched.values()
    assert (found.topic, found.subscriber) == ("t", "away")
    assert found.share == pytest.approx(stage.share())
    stage.fill(0.9)
    stage.wait(LOOK_SECONDS)
    assert stage.core.backlogs.watched["t"].share > 0.9
    (line,) = warnings(caplog)
    assert line.startswith("topic t: its backlog is at 8")
    assert line.endswith("; it waits for away: start away, or run pubsub topic unsubscribe t --subscriber away")
    stage.close()


def test_a_topic_between_the_two_shares_stays_named_and_gives_no_second_warning(
    stage: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    stage.fill(0.8)
    stage.take(1)
    stage.wait(LOOK_SECONDS)
    assert 0.7 < stage.core.backlogs.watched["t"].share < 0.8
    stage.fill(0.8)
    stage.wait(LOOK_SECONDS)
    assert len(warnings(caplog)) == 1
    stage.take(4)
    caplog.set_level("INFO")
    stage.wait(LOOK_SECONDS)
    assert not stage.core.backlogs.watched
    assert caplog.records[-1].getMessage() == "topic t: its backlog is away from backlog_bytes_max again"
    stage.close()


def test_a_second_warning_about_a_topic_comes_after_some_minutes_only(
    stage: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    stage.fill(0.8)
    stage.take(stage.last)
    stage.wait(LOOK_SECONDS)
    stage.fill(0.8)
    assert "t" in stage.core.backlogs.watched
    assert len(warnings(caplog)) == 1
    stage.take(stage.last)
    stage.wait(WARNING_SECONDS)
    stage.fill(0.8)
    assert len(warnings(caplog)) == 2
    stage.close()


def test_no_more_topics_are_named_than_the_metrics_have_lines(stage: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_limit, "WATCHED_MAX", 0)
    stage.fill(0.9)
    assert not stage.core.backlogs.watched
    stage.close()


def test_a_topic_that_left_is_named_no_more(stage: Filled) -> None:
    stage.fill(0.8)
    stage.core.state.remove("t")
    stage.wait(LOOK_SECONDS)
    assert not stage.core.backlogs.watched
    stage.close()


def test_a_refused_put_is_counted_by_its_limit(stage: Filled) -> None:
    stage.fill(0.9)
    assert stage.put("t", stage.last + 1, [b"x" * STEP], previous=stage.last).reason == "backlog_bytes_max"
    assert stage.core.state.counters["backlog_limit_refused"] == 1
    stage.close()
