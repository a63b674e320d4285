"""When a standby doubts its primary, when it looks, and when it may say that the primary is gone."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pubsub.protocol.register import Vote, VoteOutcome
from pubsub.server.standby.election.failure_detector import LOOKS_PER_BEAT, FailureDetector, Times, times_of
from tests.server.stage import Stage
from tests.standby.cast import STORE

TIMES = Times(heartbeat=1.0, patience=3.0, beat=0.4, silence=1.0, switch=3.0, doubt=0.8, take=1.6, sticky=0.8)
HEARD = 100.0


def watch() -> FailureDetector:
    return FailureDetector(2, TIMES, Random(1), HEARD)


def vote(token: int, silence_ms: int) -> Vote:
    return Vote("p", STORE, VoteOutcome.REPORTED, token, "0" * 16, silence_ms=silence_ms)


def test_a_standby_that_hears_its_primary_asks_no_proxy() -> None:
    one = watch()
    assert one.look(HEARD, HEARD + TIMES.doubt, known=True) == 0
    assert one.deadline(HEARD, known=True) == HEARD + TIMES.doubt


def test_a_member_without_a_known_primary_asks_at_once_and_then_a_few_times_a_beat() -> None:
    one = watch()
    assert one.deadline(HEARD, known=False) == HEARD
    token = one.look(HEARD, HEARD, known=False)
    assert token
    assert one.look(HEARD, HEARD + 0.09, known=False) == 0
    assert one.deadline(HEARD, known=False) == HEARD + TIMES.beat / LOOKS_PER_BEAT
    assert one.look(HEARD, HEARD + 0.1, known=False) > 0


def test_each_doubt_has_its_own_token() -> None:
    one = watch()
    first = {one.look(HEARD, HEARD + seconds, known=True) for seconds in (0.9, 1.1, 1.3)}
    assert len(first) == 1
    assert one.look(HEARD + 1.4, HEARD + 1.5, known=True) == 0
    assert one.look(HEARD + 1.4, HEARD + 2.5, known=True) not in {0, *first}


def test_a_silent_primary_is_lost_after_a_majority_asked_it_in_vain_for_long_enough() -> None:
    one = watch()
    token = one.look(HEARD, HEARD + 0.9, known=True)
    for place in (0, 1):
        one.vote(place, vote(token, 900), HEARD + 0.9)
    assert not one.lost(HEARD, HEARD + 1.65), "a proxy asks the primary only since it was asked itself"
    one.vote(0, vote(token, 1700), HEARD + 1.7)
    assert one.lost(HEARD, HEARD + 1.71)


def test_a_proxy_that_hears_the_primary_and_a_silent_proxy_keep_the_primary() -> None:
    one = watch()
    token = one.look(HEARD, HEARD + 0.9, known=True)
    one.vote(0, vote(token, 5000), HEARD + 0.9)
    one.vote(1, vote(token, 100), HEARD + 0.9)
    assert not one.lost(HEARD, HEARD + 9.0)


def test_a_silent_primary_with_ended_proxy_connections_is_lost_after_a_few_beats() -> None:
    one = watch()
    token = one.look(HEARD, HEARD + 0.9, known=True)
    for place in (0, 2):
        one.vote(place, vote(token, -1), HEARD + 0.9)
    assert not one.lost(HEARD, HEARD + TIMES.take)
    assert one.lost(HEARD, HEARD + TIMES.take + 0.01)


def test_a_primary_whose_link_and_proxy_connections_ended_is_lost_at_once() -> None:
    one = watch()
    one.ended(HEARD + 0.1)
    assert one.deadline(HEARD, known=True) == HEARD + 0.1
    token = one.look(HEARD, HEARD + 0.1, known=True)
    one.vote(0, vote(token, -1), HEARD + 0.1)
    assert not one.lost(HEARD, HEARD + 0.1)
    one.vote(1, vote(token, -1), HEARD + 0.1)
    assert one.lost(HEARD, HEARD + 0.1)


def test_earlier_votes_do_not_count_against_a_primary_that_is_heard_again() -> None:
    one = watch()
    one.ended(HEARD + 0.1)
    token = one.look(HEARD, HEARD + 0.1, known=True)
    for place in (0, 1):
        one.vote(place, vote(token, -1), HEARD + 0.1)
    assert not one.lost(HEARD + 0.2, HEARD + 0.2)
    assert one.look(HEARD + 0.2, HEARD + 0.2, known=True) == 0
    assert one.look(HEARD + 0.2, HEARD + 2.0, known=True)
    assert not one.lost(HEARD + 0.2, HEARD + 2.0)


def test_votes_with_another_token_do_not_count() -> None:
    one = watch()
    one.ended(HEARD + 0.1)
    token = one.look(HEARD, HEARD + 0.1, known=True)
    for place in (0, 1):
        one.vote(place, vote(token + 1, -1), HEARD + 0.1)
    assert not one.lost(HEARD, HEARD + 9.0)


@pytest.mark.parametrize(("heartbeat", "beat"), [(1.0, 0.25), (0.2, 0.1), (5.0, 5.0)])
def test_a_primary_drops_a_silent_standby_before_that_standby_would_take_over(
    tmp_path: Path, heartbeat: float, beat: float
) -> None:
    times = times_of(Stage.settings_of(tmp_path, heartbeat_seconds=heartbeat, standby_heartbeat_seconds=beat))
    assert times.silence < times.take <= times.patience + times.heartbeat / 2
    assert times.doubt + times.sticky <= times.take
