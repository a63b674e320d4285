from pubsub.services.lull import MESSAGES_MAX, NAP_SECONDS, WORK_SECONDS, Lull


def lulled(messages: int, seconds: int = 3) -> tuple[Lull, float]:
    """So many idle messages a second, for some seconds."""
    lull, now = Lull(), 100.0
    for _ in range(seconds):
        lull.took(messages, now, worked=False)
        now += 1.0
        lull.nap(now)
    return lull, now


def test_few_heartbeats_are_taken_as_they_come():
    lull, now = lulled(MESSAGES_MAX - 1)
    assert lull.nap(now) == 0.0


def test_many_are_left_to_gather():
    lull, now = lulled(MESSAGES_MAX)
    assert lull.nap(now) == NAP_SECONDS


def test_where_there_is_work_each_message_is_taken_as_it_comes():
    lull, now = lulled(MESSAGES_MAX)
    lull.took(1, now, worked=True)
    assert lull.nap(now) == lull.nap(now + WORK_SECONDS * 0.99) == 0.0
    assert lull.nap(now + WORK_SECONDS) == NAP_SECONDS


def test_what_was_long_ago_says_nothing():
    lull, now = lulled(MESSAGES_MAX)
    assert lull.nap(now + 10.0) == 0.0
