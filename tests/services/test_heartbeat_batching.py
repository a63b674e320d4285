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


def test_few_heartbeats_are_taken_as_they_come():
    batching, now = lulled(MESSAGES_MAX - 1)
    assert batching.batching_seconds(now) == 0.0


def test_many_are_left_to_gather():
    batching, now = lulled(MESSAGES_MAX)
    assert batching.batching_seconds(now) == BATCHING_SECONDS


def test_where_there_is_work_each_message_is_taken_as_it_comes():
    batching, now = lulled(MESSAGES_MAX)
    batching.took(1, now, worked=True)
    assert batching.batching_seconds(now) == batching.batching_seconds(now + WORK_SECONDS * 0.99) == 0.0
    assert batching.batching_seconds(now + WORK_SECONDS) == BATCHING_SECONDS


def test_what_was_long_ago_says_nothing():
    batching, now = lulled(MESSAGES_MAX)
    assert batching.batching_seconds(now + 10.0) == 0.0
