"""A request on its way: every state with every event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.http.core.answers import Answer, Verdict
from pubsub.http.core.outgoing import (
    EVENTS,
    OVER,
    TRANSITIONS,
    Event,
    Kind,
    Outgoing,
    State,
    put_off,
    settle,
)
from pubsub.web.backoff import Backoff

OPEN = Outgoing("id", Kind.PUT, "PUT", "http://h/", {}, b"body", b"", 10.0, 100.0, 10.0)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_event_leads_somewhere_and_nothing_leads_out_of_an_end(state: State, event: Event) -> None:
    after = TRANSITIONS[state][event]
    if state in OVER:
        assert after is state
    if state is State.ACCEPTED:
        assert after in {State.ACCEPTED, *OVER}
        assert (after is State.ACCEPTED) == (event not in {Event.RESULT, Event.FAILED, Event.EXPIRED})


def test_every_verdict_is_an_event() -> None:
    assert EVENTS.keys() == set(Verdict)


@pytest.mark.parametrize("event", [event for event in Event if event is not Event.AGAIN])
def test_a_settled_request_is_not_sent_again_and_has_no_body(event: Event) -> None:
    after = settle(OPEN, event, 20.0, answer=Answer(200), confirm="http://h/c")
    assert after.body == b""
    assert after.changed == 20.0
    assert after.over == (event is not Event.ACCEPTED)
    assert (after.answer is not None) == after.over
    assert (after.confirm != "") == (after.state is State.DONE)
    assert settle(after, event, 30.0) is after


def test_an_accepted_job_waits_until_it_expires() -> None:
    after = settle(OPEN, Event.ACCEPTED, 20.0)
    assert (after.state, after.due) == (State.ACCEPTED, OPEN.expires)
    assert put_off(after, 30.0, Backoff.doubling(1.0, 9.0), 0.5) is after
    assert settle(after, Event.RESULT, 40.0, answer=Answer(200, {}, b"r")).answer == Answer(200, {}, b"r")


@given(st.integers(0, 50), st.floats(0, 1), st.floats(0, 1e9))
def test_a_try_that_failed_is_made_again_and_never_later_than_the_expiry(
    attempts: int, chance: float, asked: float
) -> None:
    after = put_off(replace(OPEN, attempts=attempts), 50.0, Backoff.doubling(0.5, 60.0), chance, asked, "no")
    assert 50.0 < after.due <= OPEN.expires
    assert (after.attempts, after.problem, after.body) == (attempts + 1, "no", b"body")
