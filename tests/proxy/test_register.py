"""The register at one proxy: its promises, its accepted views, its refusals, and the lack of a vote.

The rules are those of docs/explanation/register.md, R3 and R9.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pubsub.protocol import decode, encode
from pubsub.protocol.register import Accept, Admit, Look, Prepare, View, Vote, VoteOutcome
from pubsub.proxy.register import REGISTERS_MAX, Registers
from pubsub.proxy.remembered import RegisterRow, RouteChanges
from pubsub.proxy.routes_file import RoutesStore

STORE, IDENTITY, A, B = "0" * 16, "f" * 16, "a" * 16, "b" * 16
FIRST = View(100, A, "tcp://a:1", (A, B), (A, B))
NEXT = View(200, B, "tcp://b:1", (A, B), (B,))
ROW = RegisterRow(STORE, 100, 100, FIRST, "s1")


def acceptor(*rows: RegisterRow) -> tuple[Registers, RouteChanges]:
    changes = RouteChanges()
    return Registers("p1", IDENTITY, rows, changes, patience=3.0), changes


def prepare(ballot: int, member: str = B, kind: str = "takeover") -> Prepare:
    return Prepare("s1", STORE, member, ballot, ballot * 7, kind)


def accept(ballot: int, view: View = NEXT) -> Accept:
    return Accept("s1", STORE, view.primary, ballot, ballot * 7, view)


def test_a_higher_ballot_is_promised_and_the_accepted_view_is_reported() -> None:
    registers, changes = acceptor(ROW)
    vote = registers.handle(prepare(200), 0.0)
    assert vote == Vote("p1", STORE, VoteOutcome.PROMISED, 1400, IDENTITY, promised=200, ballot=100, view=FIRST)
    assert changes.registers == {STORE: replace(ROW, promised=200)}


@pytest.mark.parametrize("ballot", [200, 199, 1])
def test_a_ballot_not_above_the_promise_is_refused_with_the_promise(ballot: int) -> None:
    registers, changes = acceptor(replace(ROW, promised=200))
    vote = registers.handle(prepare(ballot), 0.0)
    assert (vote.outcome, vote.promised, vote.token) == (VoteOutcome.REFUSED, 200, ballot * 7)
    assert not changes


@pytest.mark.parametrize("ballot", [200, 201])
def test_a_ballot_as_high_as_the_promise_is_accepted(ballot: int) -> None:
    registers, changes = acceptor(replace(ROW, promised=200))
    vote = registers.handle(accept(ballot), 0.0)
    assert (vote.outcome, vote.promised, vote.ballot, vote.view) == (VoteOutcome.ACCEPTED, ballot, ballot, NEXT)
    assert changes.registers == {STORE: RegisterRow(STORE, ballot, ballot, NEXT, "s1")}


def test_a_ballot_below_the_promise_is_not_accepted() -> None:
    registers, changes = acceptor(replace(ROW, promised=200))
    vote = registers.handle(accept(199), 0.0)
    assert (vote.outcome, vote.ballot, vote.view) == (VoteOutcome.REFUSED, 100, FIRST)
    assert not changes


def test_an_acceptor_promises_no_ballot_below_the_accepted_one() -> None:
    registers, _ = acceptor(ROW)
    registers.handle(accept(200), 0.0)
    assert registers.handle(prepare(150), 0.0).outcome is VoteOutcome.REFUSED
    assert registers.handle(accept(150, FIRST), 0.0).outcome is VoteOutcome.REFUSED


def test_a_look_reports_and_promises_nothing() -> None:
    registers, changes = acceptor(replace(ROW, promised=200))
    vote = registers.handle(Look("s1", STORE, 5), 0.0)
    assert vote == Vote("p1", STORE, VoteOutcome.REPORTED, 5, IDENTITY, promised=200, ballot=100, view=FIRST)
    assert not changes


def test_the_file_keeps_everything_for_the_same_votes_later(tmp_path: Path) -> None:
    """What `handle` has noted is all that a later life needs."""
    registers, changes = acceptor(ROW)
    registers.handle(prepare(150), 0.0)
    registers.handle(accept(200), 0.0)
    registers.handle(prepare(300), 0.0)
    store = RoutesStore(tmp_path, identity=IDENTITY)
    store.write(changes)
    again = Registers("p1", store.identity, store.load().registers, RouteChanges(), patience=3.0)
    store.close()
    look = Look("s1", STORE, 1)
    assert again.handle(look, 0.0) == registers.handle(look, 0.0)
    assert again.handle(prepare(300), 0.0).outcome is VoteOutcome.REFUSED


def test_every_kind_of_vote_round_trips() -> None:
    registers, _ = acceptor(ROW)
    for asked in (prepare(150), accept(200), prepare(10), Look("s1", STORE, 1), Look("s1", "1" * 16, 1)):
        vote = registers.handle(asked, 0.0)
        assert decode(*encode(vote)) == vote


# Without a row


@pytest.mark.parametrize("asked", [prepare(200), accept(200), Look("s1", STORE, 5)], ids=lambda a: type(a).__name__)
def test_a_proxy_without_its_row_has_no_vote_and_shows_its_identity(asked: Prepare | Accept | Look) -> None:
    registers, changes = acceptor(replace(ROW, store="1" * 16))
    vote = registers.handle(asked, 0.0)
    assert (vote.outcome, vote.identity, vote.promised, vote.view) == (VoteOutcome.NEW, IDENTITY, 0, None)
    assert not changes


def admit(identity: str = IDENTITY, promised: int = 250, store: str = STORE) -> Admit:
    return Admit("s1", store, 9, identity, promised, 200, NEXT)


def test_a_proxy_without_its_row_gets_one_and_votes_afterwards() -> None:
    registers, changes = acceptor()
    vote = registers.handle(admit(), 0.0)
    assert vote == Vote("p1", STORE, VoteOutcome.REPORTED, 9, IDENTITY, promised=250, ballot=200, view=NEXT)
    assert changes.registers == {STORE: RegisterRow(STORE, 250, 200, NEXT, "s1")}
    assert registers.handle(prepare(250), 0.0).outcome is VoteOutcome.REFUSED
    assert registers.handle(prepare(251), 0.0).outcome is VoteOutcome.PROMISED


def test_a_promise_below_the_accepted_ballot_counts_as_that_ballot() -> None:
    registers, _ = acceptor()
    assert registers.handle(admit(promised=0), 0.0).promised == 200


def test_a_row_for_another_routes_file_is_not_taken() -> None:
    registers, changes = acceptor()
    assert registers.handle(admit(identity="e" * 16), 0.0).outcome is VoteOutcome.NEW
    assert not changes


def test_a_proxy_that_has_its_row_keeps_it() -> None:
    registers, changes = acceptor(ROW)
    vote = registers.handle(admit(), 0.0)
    assert (vote.outcome, vote.promised, vote.ballot) == (VoteOutcome.REPORTED, 100, 100)
    assert not changes


def test_registers_beyond_the_limit_are_refused() -> None:
    rows = [replace(ROW, store=f"{number:016x}") for number in range(1, REGISTERS_MAX)]
    registers, _ = acceptor(*rows)
    assert registers.handle(admit(), 0.0).outcome is VoteOutcome.REPORTED
    assert registers.handle(admit(store="c" * 16), 0.0).outcome is VoteOutcome.FULL
    assert len(registers.rows) == REGISTERS_MAX


# Stickiness


def test_a_proxy_that_hears_the_primary_does_not_help_to_replace_it() -> None:
    registers, changes = acceptor(ROW)
    assert registers.received(STORE, A, 100, 10.0)
    vote = registers.handle(prepare(200), 12.9)
    assert (vote.outcome, vote.silence_ms) == (VoteOutcome.PRIMARY_ALIVE, 2900)
    assert not changes
    assert registers.handle(prepare(200), 13.0).outcome is VoteOutcome.PROMISED


@pytest.mark.parametrize("kind", ["resume", "remove_from_sync", "add_to_sync", "remove", "handover"])
def test_an_attempt_that_replaces_no_silent_primary_gets_promises(kind: str) -> None:
    registers, _ = acceptor(ROW)
    registers.received(STORE, A, 100, 10.0)
    assert registers.handle(prepare(200, kind=kind), 10.0).outcome is VoteOutcome.PROMISED


def test_a_primary_does_not_block_itself() -> None:
    registers, _ = acceptor(ROW)
    registers.received(STORE, A, 100, 10.0)
    assert registers.handle(prepare(200, member=A), 10.0).outcome is VoteOutcome.PROMISED


def test_a_primary_whose_connection_ended_is_not_heard() -> None:
    registers, _ = acceptor(ROW)
    registers.received(STORE, A, 100, 10.0)
    registers.disconnected(STORE, B)
    assert registers.handle(prepare(150), 10.0).outcome is VoteOutcome.PRIMARY_ALIVE
    registers.disconnected(STORE, A)
    vote = registers.handle(prepare(200), 10.0)
    assert (vote.outcome, vote.silence_ms) == (VoteOutcome.PROMISED, -1)


def test_a_primary_of_a_lower_term_differs_from_the_one_that_was_heard() -> None:
    registers, _ = acceptor(ROW)
    assert registers.received(STORE, B, 200, 10.0)
    assert not registers.received(STORE, A, 100, 11.0)
    assert registers.handle(Look("s1", STORE, 1), 12.0).silence_ms == 2000
    registers.disconnected(STORE, B)
    assert not registers.received(STORE, A, 100, 12.0)
    assert registers.received(STORE, A, 300, 12.0)


def test_a_store_without_a_register_leaves_no_memory() -> None:
    registers, _ = acceptor(ROW)
    for number in range(1, 1000):
        assert registers.received(f"{number:016x}", A, 1, 0.0)
    assert not registers._last
