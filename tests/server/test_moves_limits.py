"""The large parts of a moving or joined topic: waiting bytes, subscriptions, staged rows."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from pubsub.protocol import Outcome, Subscribe
from pubsub.server.moves import receiving
from pubsub.server.moves.chunks import Moving, chunks, read
from pubsub.server.moves.giving import GIFTS_MAX, REFUSED_SECONDS
from pubsub.server.requests import admission
from pubsub.server.topic import delivery
from pubsub.server.topic.spans import Span
from pubsub.server.topic.subscription import SubscriptionRow, subscription_of
from pubsub.server.upkeep import staging
from tests.server.moving import Pair, put, split, take
from tests.server.stage import Stage
from tests.server.test_sinks import write


@pytest.mark.parametrize("restarted", [False, True])
def test_a_moved_backlog_counts_towards_the_limit(tmp_path: Path, restarted: bool) -> None:
    pair = Pair(tmp_path, "s1", "s2", backlog_bytes_max=500)
    pair["s1"].ask(Subscribe("bob", "t", 5, 5))
    assert put(pair["s1"], "alice", 10, 0, b"k" * 400) == "success"
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    if restarted:
        pair["s2"].restart()
    assert put(pair["s2"], "alice", 11, 10, b"k" * 400) == "full"
    assert take(pair["s2"], "bob") == [b"k" * 400]
    pair.close()


def test_a_subscription_keeps_no_range_of_a_log_that_it_has_finished(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many batches are left out for bob as one look takes: what is left of the range is nothing."""
    monkeypatch.setattr(delivery, "BATCHES_MAX", 2)
    pair["s1"].ask(Subscribe("bob", "t", 5, 5))
    for stage in pair.stages.values():
        for counter in (10, 11):
            assert put(stage, "alice", counter, counter - 1 if counter > 10 else 0, b"a%d" % counter) == "success"
    pair.merge("s2", "s1")
    pair.turns()
    server = pair["s1"]
    assert take(server, "bob") == [b"a10", b"a11"]
    server.sleep(server.settings.retention_hold_seconds + 10)
    topic = server.core.state.topics["t"]
    assert {span.log for span in topic.subscriptions["bob"].cursor.backlog} <= topic.logs.keys()
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]


@pytest.mark.slow
def test_many_subscriptions_with_long_backlogs_move_in_readable_chunks(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    topic = stage.core.state.topics["t"]
    spans = tuple(Span(topic.open.id, low, low + 1) for low in range(1_000_000, 1_000_040))
    every = {
        f"reader{n:020}": subscription_of("reader", SubscriptionRow(5, 5, True, 0, (topic.open.id, 0), spans))
        for n in range(5_000)
    }
    topic.subscriptions = every
    moving = Moving()
    for chunk in chunks(topic, stage.core.state.reader, []):
        read(chunk, moving, lambda: 1)
    assert moving.subscriptions.keys() == every.keys()


def test_stages_of_both_sides_beyond_the_limit_can_be_moved(pair: Pair) -> None:
    """Together it is more than a topic may have: what was silent for longest goes, and is written again."""
    with (
        patch.object(staging, "PIECES_MAX", 4),
        patch.object(receiving, "PIECES_MAX", 4),
        patch.object(admission, "PIECES_MAX", 4),
    ):
        for name, attempt in (("s1", "old"), ("s2", "new")):
            for first in range(3):
                pair[name].now += 1
                assert write(pair[name], 0, attempt, first, b"x").outcome is Outcome.SUCCESS
        pair.merge("s2", "s1")
        pair.turns()
        assert pair.holders() == ["s1"]
        pair.merge("s1", "s2")
        pair.turns()
        assert pair.holders() == ["s2"]
        assert [key[2] for key in pair["s2"].core.state.topics["t"].stages] == ["new"]


def test_topics_on_their_way_to_a_dead_server_do_not_block_others(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2", "s3")
    giver = pair["s1"]
    topics = [f"t{n}" for n in range(GIFTS_MAX + 1)]
    for topic in topics:
        assert giver.put(topic, 1).outcome is Outcome.SUCCESS
    pair.lose = {"chunk"}
    for topic in topics[:-1]:
        pair.merge("s1", "s2", topic)
    pair.turns(6)
    assert all(giver.core.state.topics[topic].frozen for topic in topics[:-1])
    del pair.stages["s2"]
    pair.lose = set()
    pair.turns(30)
    pair.merge("s1", "s3", topics[-1])
    pair.turns(10)
    assert pair.holders(topics[-1]) == ["s3"]
    pair.close()


def test_a_topic_that_the_receiver_takes_partly_is_served_again_and_offered_later(pair: Pair) -> None:
    """As one of another release might."""
    giver = pair["s1"]
    split(pair)
    with patch.object(receiving, "PIECES_MAX", 0):
        assert write(giver, 0, "first", 0, b"x").outcome is Outcome.SUCCESS
        for _ in range(30):
            pair.merge("s1", "s2")
            pair.turn()
        assert pair.holders() == ["s1", "s2"]
        assert not giver.core.state.topics["t"].frozen
        assert put(giver, "alice", 12, 11, b"alice3") == "success"
        assert pair.steps.count("offer") == 1
    giver.sleep(REFUSED_SECONDS)
    pair.merge("s1", "s2")
    pair.turns(20)
    assert pair.holders() == ["s2"]
    assert take(pair["s2"], "bob") == [b"alice1", b"alice2", b"alice3", b"carl1", b"carl2"]
