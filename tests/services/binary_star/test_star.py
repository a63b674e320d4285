"""One server's part in its pair: the time at which a state counts, a request is taken, a state is sent.

The rules are those of docs/explanation/services-engine.md, E11 and E12.
"""

from __future__ import annotations

import pytest

from pubsub.services.core.binary_star.star import BinaryStar, Turn
from pubsub.services.core.binary_star.states import Role, State, Word


class Held(BinaryStar):
    """A server whose loop turns as it should, four times a second."""

    def __init__(self, role: Role = Role.PRIMARY) -> None:
        super().__init__(role, 0.0)
        self.now = 0.0
        self.said: list[tuple[float, Word]] = []
        self._turn_once()

    def _turn_once(self) -> None:
        word = self.due(self.now)
        if word is not None:
            self.said.append((self.now, word))

    def until(self, when: float, word: Word | None = None) -> None:
        """Time passes; the other server says a word all the time, or nothing."""
        while self.now < when:
            self.now = min(when, self.now + 0.25)
            if word is not None:
                self.receive(word, self.now)
            self._turn_once()


def primary(state: State) -> Held:
    """A primary that has come to a state, at 3 s."""
    one = Held()
    one.until(3.0, {State.PRIMARY: Word.PASSIVE, State.ACTIVE: Word.BACKUP, State.PASSIVE: Word.ACTIVE}[state])
    assert one.state is state
    return one


def backup(state: State) -> Held:
    """A backup that has, at 3 s; LISTENING since then."""
    one = Held(Role.BACKUP)
    if state is State.BACKUP:
        one.until(3.0, Word.PRIMARY)
    elif state is State.PASSIVE:
        one.until(3.0, Word.ACTIVE)
    elif state is State.ACTIVE:
        one.until(1.0, Word.ACTIVE)
        one.until(3.0, Word.PRIMARY)
    else:
        one.until(1.5, Word.ACTIVE)
        one.now = 3.0
        assert not one.active(3.0)
    assert one.state is state
    return one


def test_a_primary_that_starts_takes_no_request_for_two_heartbeats_and_then_the_first() -> None:
    one = Held()
    for now in (0.0, 1.0, 1.99):
        one.until(now)
        assert not one.request(now)
    one.until(2.0)
    assert one.state is State.PRIMARY, "silence alone changes nothing"
    assert one.request(2.0)
    assert one.state is State.ACTIVE


def test_a_primary_that_hears_its_backup_is_active_after_two_heartbeats() -> None:
    one = Held()
    one.until(1.75, Word.BACKUP)
    assert one.state is State.PRIMARY
    one.until(2.0, Word.BACKUP)
    assert one.state is State.ACTIVE


def test_a_primary_that_hears_an_active_backup_is_passive_at_once() -> None:
    one = Held()
    one.receive(Word.ACTIVE, 0.1)
    assert one.state is State.PASSIVE


def test_a_backup_takes_no_request_before_it_has_seen_an_active_primary() -> None:
    one = Held(Role.BACKUP)
    one.until(30.0)
    assert not one.request(30.0)
    assert one.state is State.BACKUP


def test_a_request_takes_over_after_two_heartbeats_of_silence() -> None:
    one = backup(State.PASSIVE)
    one.until(4.75)
    assert not one.request(4.99)
    assert one.state is State.PASSIVE
    assert one.request(5.0)
    assert one.state is State.ACTIVE


def test_silence_without_a_request_causes_no_takeover() -> None:
    one = backup(State.PASSIVE)
    one.until(60.0)
    assert one.state is State.PASSIVE


@pytest.mark.parametrize("word", [Word.PRIMARY, Word.BACKUP])
def test_a_passive_server_is_active_at_once_when_the_other_is_restarted(word: Word) -> None:
    one = primary(State.PASSIVE)
    one.receive(word, 3.1)
    assert one.state is State.ACTIVE


@pytest.mark.parametrize("word", [Word.PRIMARY, Word.BACKUP])
def test_a_passive_server_that_just_started_does_not_trust_that_yet(word: Word) -> None:
    one = Held()
    one.until(1.0, Word.ACTIVE)
    one.receive(word, 1.1)
    assert one.state is State.PASSIVE
    one.until(1.9, Word.ACTIVE)
    one.receive(word, 2.0)
    assert one.state is State.ACTIVE


def test_an_active_server_takes_requests_during_any_silence() -> None:
    one = primary(State.ACTIVE)
    one.until(20.0)
    assert one.request(20.0)
    assert one.conflicts == one.stalls == 0


def test_a_server_sends_its_state_at_once_and_then_twice_in_a_heartbeat() -> None:
    one = Held()
    one.until(1.0, Word.PASSIVE)
    assert one.said == [(0.0, Word.PRIMARY), (0.5, Word.PRIMARY), (1.0, Word.PRIMARY)]
    one.receive(Word.ACTIVE, 1.1)
    assert one.deadline() <= 1.1, "the loop is asked to turn at once"
    assert one.due(1.1) is Word.PASSIVE
    assert one.due(1.2) is None
    assert one.deadline() == pytest.approx(1.6)


def test_a_listening_server_sends_nothing_and_keeps_turning() -> None:
    one = backup(State.LISTENING)
    assert one.due(3.0) is None
    assert one.deadline() == 3.5
    assert one.due(3.5) is None
    assert one.stalls == 1


@pytest.mark.parametrize(
    ("make", "state", "after"),
    [
        (primary, State.PRIMARY, State.PRIMARY),
        (primary, State.ACTIVE, State.PRIMARY),
        (primary, State.PASSIVE, State.PRIMARY),
        (backup, State.BACKUP, State.BACKUP),
        (backup, State.ACTIVE, State.LISTENING),
        (backup, State.PASSIVE, State.LISTENING),
        (backup, State.LISTENING, State.LISTENING),
    ],
)
def test_a_server_that_stood_still_for_a_heartbeat_and_a_half_begins_anew_first(make, state, after) -> None:  # type: ignore[no-untyped-def]
    one = make(state)
    assert not make(state).request(one.now + 1.5), "it would have taken what waited in its socket"
    assert not make(state).active(one.now + 1.5), "it would have answered"
    for wake in (BinaryStar.active, BinaryStar.due, lambda one, now: one.receive(Word.ACTIVE, now)):
        one = make(state)
        wake(one, one.now + 1.5)
        assert one.stalls == make(state).stalls + 1
    one = make(state)
    one.active(one.now + 1.5)
    assert one.state is after


def test_a_server_that_stood_still_for_less_continues() -> None:
    one = primary(State.ACTIVE)
    assert one.request(4.49)
    assert one.lapses_at() == 4.5


def test_a_returned_backup_takes_over_after_two_heartbeats_of_silence() -> None:
    one = backup(State.LISTENING)
    one.until(4.75)
    assert not one.request(4.9)
    one.until(5.0)
    assert one.request(5.0)


def test_a_returned_backup_waits_as_long_as_it_hears_a_primary() -> None:
    one = backup(State.LISTENING)
    one.until(9.0, Word.PRIMARY)
    assert not one.request(9.0)
    one.receive(Word.ACTIVE, 9.1)
    assert one.state is State.PASSIVE


@pytest.mark.parametrize(
    ("make", "state", "word", "after"),
    [
        (primary, State.PRIMARY, Word.PRIMARY, State.PRIMARY),
        (primary, State.ACTIVE, Word.ACTIVE, State.PRIMARY),
        (primary, State.PASSIVE, Word.PASSIVE, State.PRIMARY),
        (backup, State.BACKUP, Word.BACKUP, State.BACKUP),
        (backup, State.ACTIVE, Word.ACTIVE, State.LISTENING),
        (backup, State.PASSIVE, Word.PASSIVE, State.LISTENING),
        (backup, State.LISTENING, Word.BACKUP, State.LISTENING),
    ],
)
def test_a_server_that_hears_its_own_state_begins_anew(make, state, word, after) -> None:  # type: ignore[no-untyped-def]
    one = make(state)
    one.take_turns()
    one.receive(word, one.now + 0.1)
    assert one.conflicts == 1
    assert one.state is after
    assert not one.request(one.now + 0.2)
    assert one.silent_at() == one.now + 2.1
    assert one.take_turns() == [Turn(state, after, f"the other reports the same state: {state.value}", wrong=True)]


def test_a_change_is_reported_once() -> None:
    one = Held()
    one.receive(Word.ACTIVE, 0.1)
    assert one.take_turns() == [Turn(State.PRIMARY, State.PASSIVE, "the other is active")]
    assert one.take_turns() == []


def test_another_heartbeat_changes_all_times() -> None:
    one = BinaryStar(Role.PRIMARY, 0.0, heartbeat=0.1)
    assert one.due(0.0) is Word.PRIMARY
    assert one.deadline() == pytest.approx(0.05)
    assert one.silent_at() == pytest.approx(0.2)
    assert one.lapses_at() == pytest.approx(0.15)
