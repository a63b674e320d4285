"""An arriving request: the decision about it, from all possible states of knowledge.

The rule is docs/explanation/reliable-http.md, Q3.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pubsub.http.core.incoming import Decision, Incoming, Standing, acknowledgement, decide, worn_out
from pubsub.http.core.outgoing import Kind

FOUND = Incoming("", "k", Kind.PUT, "PUT", "/", "", {}, b"", b"print", 0.0)


def test_an_unknown_request_is_stored_if_there_is_room_and_it_is_not_finished() -> None:
    assert decide(None, b"print") is Decision.STORE
    assert decide(None, b"print", room=False) is Decision.FULL
    assert decide(None, b"print", forgotten=True) is decide(None, b"", forgotten=True, room=False) is Decision.FORGOTTEN


@pytest.mark.parametrize("standing", Standing)
@pytest.mark.parametrize("kind", Kind)
def test_another_payload_under_the_same_key_is_refused_in_every_state(standing: Standing, kind: Kind) -> None:
    found = replace(FOUND, standing=standing, kind=kind)
    assert decide(found, b"other") is decide(found, b"other", running=True, room=False) is Decision.MISMATCH


@pytest.mark.parametrize(
    ("standing", "kind", "running", "decision"),
    [
        (Standing.RECEIVED, Kind.PUT, False, Decision.HANDLE),
        (Standing.RECEIVED, Kind.PUT, True, Decision.RUNNING),
        (Standing.RECEIVED, Kind.SEND, True, Decision.ACKNOWLEDGE),
        (Standing.RECEIVED, Kind.JOB, False, Decision.ACKNOWLEDGE),
        (Standing.DONE, Kind.PUT, False, Decision.REPEAT),
        (Standing.DONE, Kind.SEND, False, Decision.REPEAT),
        (Standing.CONFIRMED, Kind.PUT, False, Decision.CONFIRMED),
        (Standing.FAILED, Kind.PUT, False, Decision.REPEAT),
    ],
)
def test_a_repeat_is_answered_by_the_state_of_the_first_request(
    standing: Standing, kind: Kind, running: bool, decision: Decision
) -> None:
    found = replace(FOUND, standing=standing, kind=kind)
    assert decide(found, b"print", running=running, room=False) is decision


def test_messages_are_acknowledged_by_204_and_jobs_by_202() -> None:
    assert (acknowledgement(Kind.SEND).status, acknowledgement(Kind.JOB).status) == (204, 202)


def test_a_handler_is_given_up_after_its_last_attempt() -> None:
    assert [worn_out(attempts, 3) for attempts in (1, 2, 3, 4)] == [False, False, True, True]
