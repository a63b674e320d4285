"""The wait of a member after a failed attempt; an attempt that blocked nobody causes no wait."""

from __future__ import annotations

from random import Random

import pytest

from pubsub.protocol.register import View
from pubsub.proxy.remembered import RegisterRow
from pubsub.server.standby.election.proposer import (
    NAMELESS_WAIT_BEATS,
    SPREAD_BEATS,
    WAIT_BEATS,
    Chosen,
    Ended,
    Identity,
    Proposer,
)
from tests.standby.cast import ALONE, BOTH, STORE, A, B, Cast


@pytest.mark.parametrize(("kind", "least"), [("takeover", WAIT_BEATS), ("resume", NAMELESS_WAIT_BEATS)])
def test_the_wait_after_a_ballot_is_random_and_longer_for_an_unregistered_member(kind: str, least: float) -> None:
    waits = []
    for seed in range(20):
        cast = Cast()
        proposer = Proposer(Identity("s1", STORE, B, "tcp://b:1"), cast.names, 1.0, 3.0, Random(seed))
        cast.begin(proposer, kind)
        cast.round(proposer)
        for registers in cast.proxies.values():
            registers.rows[STORE] = RegisterRow(STORE, 9000, 100, BOTH)  # Somebody else's ballot comes between.
        cast.carry(proposer)
        assert proposer.attempt is None
        wait = wait_of(cast, proposer, kind)
        assert least <= wait <= least + SPREAD_BEATS + 0.001
        waits.append(wait)
    assert len(set(waits)) > 15


def wait_of(cast: Cast, proposer: Proposer, kind: str) -> float:
    return next(ms for ms in range(20_000) if proposer.may_begin(kind, cast.now + ms / 1000)) / 1000


@pytest.mark.parametrize("view", [BOTH, ALONE], ids=["the primary is heard", "not in sync"])
def test_a_member_whose_takeover_only_looked_looks_again_soon(view: View) -> None:
    cast = Cast(view)
    for proxy in cast.proxies.values():
        proxy.received(STORE, A, 100, cast.now)
    proposer = cast.member(B)
    assert cast.attempt(proposer, "takeover") == Ended("takeover", view)
    assert wait_of(cast, proposer, "takeover") == WAIT_BEATS
    assert {row.promised for proxy in cast.proxies.values() for row in proxy.rows.values()} == {100}


@pytest.mark.parametrize("times", [1, 2], ids=["a look", "a ballot"])
def test_a_member_that_asked_for_its_registration_may_take_over_at_once(times: int) -> None:
    cast = Cast()
    proposer = cast.member(B)
    for _ in range(times):
        assert cast.attempt(proposer, "resume") == Ended("resume", BOTH)
    assert proposer.unsettled is (times == 1)
    assert not proposer.may_begin("resume", cast.now)
    assert proposer.may_begin("takeover", cast.now)
    assert isinstance(cast.attempt(proposer, "takeover"), Chosen)


def test_a_deposed_primary_may_take_over_again_without_a_wait() -> None:
    """Its successor may hand over again at once."""
    cast = Cast()
    proposer = Proposer(Identity("s1", STORE, B, "tcp://b:1"), cast.names, 1.0, 3.0, Random(1))
    for end, waits in ((proposer.cancel, True), (proposer.depose, False)):
        proposer.begin("remove_from_sync", 10.0, 1, term=5)
        end(10.0)
        assert proposer.may_begin("handover", 10.0) is not waits
