"""Lines for the log at a bounded rate."""

from __future__ import annotations

from pubsub.proxy.notices import LINES_MAX, REPEAT_SECONDS, SUBJECTS_MAX, Notices


def test_one_subject_is_logged_once_a_minute() -> None:
    notices = Notices()
    notices.say("a", "first", 0.0)
    notices.say("a", "again", REPEAT_SECONDS - 1)
    notices.say("b", "other", 1.0)
    notices.say("a", "later", REPEAT_SECONDS)
    assert notices.take() == ["first", "other", "later"]
    assert notices.take() == []


def test_a_settled_subject_is_logged_again_when_it_returns() -> None:
    notices = Notices()
    notices.say("a", "first", 0.0)
    notices.settled("a")
    notices.say("a", "again", 1.0)
    assert notices.take() == ["first", "again"]


def test_lines_beyond_the_common_limit_are_omitted_and_counted() -> None:
    notices = Notices()
    for k in range(SUBJECTS_MAX * 2):
        notices.say(f"subject {k}", "x", 0.0)
    assert len(notices.take()) == LINES_MAX
    assert notices.left_out == SUBJECTS_MAX * 2 - LINES_MAX
    notices.say("next minute", "y", REPEAT_SECONDS)
    assert notices.take() == ["y"]


def test_the_last_ones_stay_readable() -> None:
    notices = Notices()
    notices.say("a", "first", 5.0)
    notices.take()
    assert list(notices.recent) == [(5.0, "first")]
