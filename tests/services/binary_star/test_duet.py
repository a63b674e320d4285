"""Two servers, their link and their clients in a simulation; and each breakage breaks the rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pubsub.services.core.binary_star import star, states
from pubsub.services.core.binary_star.star import BinaryStar
from pubsub.services.core.binary_star.states import Role, State, Vote, Word
from tests.services.binary_star.duet import RECONNECT_MAX, SETTLED, Doubled, Duet, disturb

SECONDS = 40.0


def serves_alone(duet: Duet) -> None:
    """Everything is whole again: soon one server takes what is asked, and the other nothing."""
    begin = duet.now

    def ask() -> None:
        for server in duet.servers:
            duet.request(server)

    for number in range(int((SETTLED + 2.0) / 0.2)):
        duet.at(begin + number * 0.2, ask)
    duet.run(begin + SETTLED)
    duet.checking = True
    before = [server.taken for server in duet.servers]
    duet.run(begin + SETTLED + 2.5)
    taken = sorted(server.taken - count for server, count in zip(duet.servers, before, strict=True))
    assert taken == [0, 10], [server.star and server.star.state for server in duet.servers]


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "two lives out of order"])
@pytest.mark.parametrize("seed", range(12))
def test_two_servers_never_both_take_a_request(seed: int, in_order: bool) -> None:
    duet = Duet(seed, in_order=in_order)
    disturb(duet, SECONDS)
    assert sum(server.taken for server in duet.servers) > 50
    serves_alone(duet)


@pytest.mark.parametrize("seed", range(12))
def test_the_pair_has_one_active_server_again_after_the_link_was_cut(seed: int) -> None:
    duet = Duet(seed)
    duet.checking = False
    disturb(duet, SECONDS, cuts=True)
    serves_alone(duet)


def started(make: Callable[[Role, float], BinaryStar] = BinaryStar) -> Duet:
    """A pair at 5 s: primary active, backup passive."""
    duet = Duet(1, make)
    for server in duet.servers:
        duet.start(server)
    duet.run(5.0)
    assert [server.star and server.star.state for server in duet.servers] == [State.ACTIVE, State.PASSIVE]
    return duet


def cut_for_a_while(duet: Duet) -> None:
    """For 5 s the two do not hear each other, and clients ask both."""
    duet.cut = dict.fromkeys(duet.cut, True)
    for number in range(50):
        for server in duet.servers:
            duet.at(5.0 + number / 10, partial(duet.request, server))
    duet.run(10.0)
    duet.cut = dict.fromkeys(duet.cut, False)


def test_a_cut_link_with_clients_at_both_ends_makes_two_active_servers() -> None:
    with pytest.raises(Doubled):
        cut_for_a_while(started())


def test_one_of_two_active_servers_yields_when_the_link_is_restored() -> None:
    duet = started()
    duet.checking = False
    cut_for_a_while(duet)
    assert [server.star and server.star.state for server in duet.servers] == [State.ACTIVE, State.ACTIVE]
    serves_alone(duet)


@pytest.mark.parametrize("away", [0.0, 0.05, 0.3, 1.0, 1.9, 2.1, 4.0])
def test_a_primary_that_is_restarted_quickly_comes_back_passive_and_the_backup_serves(away: float) -> None:
    duet = started()
    primary, backup = duet.servers
    primary.die()
    duet.at(5.0 + away, lambda: duet.start(primary))
    for number in range(100):
        duet.at(5.0 + number / 10, partial(duet.request, duet.servers[number % 2]))
    duet.run(5.0 + away + RECONNECT_MAX + 1.0)
    assert primary.star is not None
    assert backup.star is not None
    assert (primary.star.state, backup.star.state) == (State.PASSIVE, State.ACTIVE)
    duet.run(15.0)
    assert (primary.star.state, backup.star.state) == (State.PASSIVE, State.ACTIVE), "it stays so: nobody fails back"


def test_a_paused_active_server_answers_no_request_that_waited_for_it() -> None:
    duet = started()
    primary, backup = duet.servers
    duet.stop(primary, 4.0)
    for number in range(90):
        duet.at(5.0 + number / 10, lambda: duet.request(primary))
        duet.at(5.0 + number / 10, lambda: duet.request(backup))
    duet.run(14.0)
    assert backup.taken > 0
    assert primary.taken == 0
    assert primary.refused > 30


def restart_with_a_word_on_its_way(seed: int) -> None:
    """The one that the Guide's table is caught by; see `states`."""
    duet = Duet(seed)
    primary, backup = duet.servers
    duet.start(primary)
    duet.at(2.9, partial(duet.request, primary))
    duet.run(3.0 + duet.random.uniform(0.0, 0.5))
    assert primary.star is not None
    assert primary.star.state is State.ACTIVE
    duet.start(backup)
    duet.run(duet.now + duet.random.uniform(0.0, 0.7))
    primary.die()
    duet.start(primary)
    primary.heard_from = duet.now  # The backup happens to try again just then.
    for number in range(100):
        for server in duet.servers:
            duet.at(duet.now + number / 20, partial(duet.request, server))
    duet.run(9.0)


def test_a_state_of_an_earlier_life_makes_no_two_masters() -> None:
    for seed in range(100):
        restart_with_a_word_on_its_way(seed)


# The checker is itself checked: whatever breaks the rule is caught.


class NoticesNoStall(BinaryStar):
    def _notice_stall(self, now: float) -> None:
        return


class NoticesStallsLate(BinaryStar):
    def lapses_at(self) -> float:
        return super().lapses_at() + 1.5


class TakesRequestsFromTheStart(BinaryStar):
    def silent_at(self) -> float:
        return self._heard + self._silence


class IsHasty(BinaryStar):
    def silent_at(self) -> float:
        return super().silent_at() - 1.0


class SaysItRarely(BinaryStar):
    def __init__(self, role: Role, now: float) -> None:
        super().__init__(role, now)
        self._interval = 2.5
        self._lease = 9.0


class GoesOnWhereBothAreActive(BinaryStar):
    def receive(self, word: Word, now: float) -> None:
        if (self.state, word) != (State.ACTIVE, Word.ACTIVE):
            super().receive(word, now)


def caught(make: Callable[[Role, float], BinaryStar], seeds: range = range(200)) -> bool:
    for seed in seeds:
        try:
            disturb(Duet(seed, make), SECONDS)
        except Doubled:
            return True
    return False


@pytest.mark.parametrize("make", [NoticesNoStall, NoticesStallsLate, TakesRequestsFromTheStart, IsHasty, SaysItRarely])
def test_a_server_without_a_rule_is_caught(make: Callable[[Role, float], BinaryStar]) -> None:
    assert caught(make)


def test_immediate_permissions_are_caught(monkeypatch: Any) -> None:
    monkeypatch.setattr(star, "PERMISSIONS", frozenset())
    with pytest.raises(Doubled):
        test_a_state_of_an_earlier_life_makes_no_two_masters()


def test_the_checker_catches_a_table_without_the_wait_for_a_vote(monkeypatch: Any) -> None:
    table = states.TABLE | {(State.PASSIVE, Vote.HEARD): State.ACTIVE}
    monkeypatch.setattr(star, "TABLE", table)
    assert caught(BinaryStar)


def test_the_checker_finds_two_servers_that_stay_active() -> None:
    duet = started(GoesOnWhereBothAreActive)
    duet.checking = False
    cut_for_a_while(duet)
    with pytest.raises(AssertionError):
        serves_alone(duet)
