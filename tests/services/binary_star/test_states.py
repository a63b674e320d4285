"""The states of a server of a pair: each state against each event, and the states on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.errors import DecodeError
from pubsub.services.core.binary_star.states import (
    PERMISSIONS,
    TABLE,
    Event,
    Role,
    State,
    Vote,
    Word,
    anew,
    decode_word,
    encode_word,
)

P, B, A, S, L = State.PRIMARY, State.BACKUP, State.ACTIVE, State.PASSIVE, State.LISTENING

EVENTS: tuple[Event, ...] = (Word.PRIMARY, Word.BACKUP, Word.ACTIVE, Word.PASSIVE, Vote.HEARD, Vote.SILENT)

EXPECTED: dict[State, tuple[State | None, ...]] = {
    # peer:  1     2     3     4    request, vote
    P: (None, A, S, P, P, A),
    B: (B, None, S, B, B, B),
    A: (A, A, None, A, A, A),
    S: (A, A, S, None, S, A),
    L: (L, None, S, L, L, A),
}


@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_each_event_in_each_state_has_its_result(state: State, event: Event) -> None:
    assert TABLE.get((state, event)) is EXPECTED[state][EVENTS.index(event)]


def test_only_two_equal_states_have_no_entry() -> None:
    missing = {(state, word) for state in State for word in EVENTS if (state, word) not in TABLE}
    assert missing == {(P, Word.PRIMARY), (B, Word.BACKUP), (A, Word.ACTIVE), (S, Word.PASSIVE), (L, Word.BACKUP)}


def test_every_entry_by_which_a_state_makes_its_hearer_active_is_a_permission() -> None:
    entries = {
        (state, event)
        for (state, event), after in TABLE.items()
        if isinstance(event, Word) and after is A and state is not A
    }
    assert entries == PERMISSIONS


@pytest.mark.parametrize(
    ("role", "before", "after"),
    [
        (Role.PRIMARY, P, P),
        (Role.PRIMARY, A, P),
        (Role.PRIMARY, S, P),
        (Role.BACKUP, B, B),
        (Role.BACKUP, A, L),
        (Role.BACKUP, S, L),
        (Role.BACKUP, L, L),
    ],
)
def test_the_state_after_a_new_beginning_depends_on_the_role(role: Role, before: State, after: State) -> None:
    assert anew(role, before) is after


def test_a_listening_server_sends_no_state_and_every_other_its_own() -> None:
    assert L.word is None
    assert {state.name: state.word for state in State if state is not L} == {
        "PRIMARY": 1,
        "BACKUP": 2,
        "ACTIVE": 3,
        "PASSIVE": 4,
    }


def test_a_state_on_the_wire_is_one_digit() -> None:
    assert [encode_word(word) for word in Word] == [b"1", b"2", b"3", b"4"]
    assert [decode_word([encode_word(word)]) for word in Word] == list(Word)
    assert decode_word([memoryview(b"3")]) is Word.ACTIVE


@given(st.lists(st.binary(max_size=4) | st.sampled_from([b"1", b"4", b"5", b"0", b"03", b"3\0", b" 3"]), max_size=3))
def test_only_one_of_four_digits_in_one_frame_is_a_state(frames: list[bytes]) -> None:
    if len(frames) == 1 and frames[0] in {b"1", b"2", b"3", b"4"}:
        assert encode_word(decode_word(frames)) == frames[0]
        return
    with pytest.raises(DecodeError, match="a state message"):
        decode_word(frames)
