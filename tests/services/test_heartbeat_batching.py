"""The rule is docs/explanation/services-engine.md, E10."""

from pubsub.services.heartbeat_batching import BATCHING_SECONDS, MESSAGES_MAX, WORK_SECONDS, HeartbeatBatching


def lulled(messages: int, seconds: int = 3) -> tuple[HeartbeatBatching, float]:
    """So many idle messages a second, for some seconds."""
    batching, now = HeartbeatBatching(), 100.0
    for _ in range(seconds):
        batching.took(messages, now, worked=False)
        now += 1.0
        batching.batching_seconds(now)
    return batching, now


def test_few_heartbeats_are_read_one_by_one():
    batching, now = lulled(MESSAGES_MAX - 1)
    assert batching.batching_seconds(now) == 0.0


def test_many_heartbeats_are_gathered():
    batching, now = lulled(MESSAGES_MAX)
    assert batching.batching_seconds(now) == BATCHING_SECONDS


def test_messages_are_read_one_by_one_during_work():
    batching, now = lulled(MESSAGES_MAX)
    batching.took(1, now, worked=True)
    assert batching.batching_seconds(now) == batching.batching_seconds(now + WORK_SECONDS * 0.99) == 0.0
    assert batching.batching_seconds(now + WORK_SECONDS) == BATCHING_SECONDS


def test_heartbeats_from_long_ago_do_not_count():
    batching, now = lulled(MESSAGES_MAX)
    assert batching.batching_seconds(now + 10.0) == 0.0
