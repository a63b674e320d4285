"""A member as composed: the roles of both, and the time of their changes.

The answered changes are on the disk of the later primary.
"""

from __future__ import annotations

from random import Random

import pytest

from pubsub.protocol.standby import Ack, Entries, EntryId, join_entries
from pubsub.proxy.remembered import RegisterRow
from pubsub.server.standby.member import NO_STORE
from pubsub.server.standby.replication import follower, primary
from pubsub.server.standby.replication.entries import make_entry
from pubsub.server.topic.changes import NoteKept
from tests.standby.cast import ALONE, BOTH, STORE, TAKEN, A, B
from tests.standby.duo import BASE, STEP, TIMES, C, Duo, Node, views


def test_the_registered_primary_serves_again_and_the_other_member_follows() -> None:
    duo = Duo().started()
    assert not duo.b.serves
    assert duo.b.disk.end == duo.a.disk.end
    assert views(duo) == {(A, (A, B))}


def test_an_answer_waits_until_the_standby_has_its_entry() -> None:
    duo = Duo().started()
    duo.cut = {A}
    duo.a.put(1)
    duo.a.turn()
    assert duo.a.released == []
    duo.cut = set()
    duo.run(1.0)
    assert duo.a.released == [1]
    assert duo.b.disk.values() == [1]


def test_the_standby_takes_over_with_all_answered_puts_and_the_old_primary_follows() -> None:
    duo = Duo().started()
    duo.a.put(1)
    duo.run(0.2)
    assert duo.a.released == [1]
    duo.a.crash()
    duo.until_serves(duo.b)
    assert duo.b.disk.values() == [1]
    assert views(duo) == {(B, (B,))}
    duo.b.put(2)
    duo.run(0.2)
    assert duo.b.released == [2]
    duo.a.start()
    duo.run(15.0)
    assert not duo.a.serves
    assert duo.a.disk.values() == [1, 2]
    assert views(duo) == {(B, (A, B))}
    assert duo.a.member.primary == (B, "tcp://b:1")


def test_a_primary_continues_alone_once_a_majority_of_the_proxies_has_accepted_that() -> None:
    duo = Duo().started()
    duo.b.crash()
    duo.cut = {(A, 0), (A, 1)}
    duo.a.put(1)
    duo.run(20.0)
    assert duo.a.released == []
    duo.cut = set()
    duo.run(20.0)
    assert duo.a.released == [1]
    assert views(duo) == {(A, (A,))}


def test_a_dropped_member_takes_over_only_after_it_is_in_sync_again() -> None:
    duo = Duo().started()
    duo.b.crash()
    duo.run(20.0)
    duo.a.put(1)
    duo.run(1.0)
    duo.a.crash()
    duo.b.start()
    duo.run(60.0)
    assert not duo.b.serves
    duo.a.start()
    duo.until_serves(duo.a)
    duo.run(10.0)
    assert duo.b.disk.values() == [1]
    assert views(duo) == {(A, (A, B))}


def test_an_isolated_primary_answers_nothing_after_a_takeover_and_steps_down() -> None:
    duo = Duo().started()
    duo.cut = {A, B, (A, 0), (A, 1), (A, 2)}
    duo.until_serves(duo.b)
    duo.a.put(1)
    duo.b.put(2)
    duo.run(1.0)
    assert (duo.a.released, duo.b.released) == ([], [2])
    duo.cut = set()
    duo.run(2.0)
    assert not duo.a.serves
    assert duo.a.released == []


def test_a_planned_switch_leaves_both_members_in_sync() -> None:
    duo = Duo().started()
    duo.a.put(1)
    assert duo.a.member.leading is not None
    assert duo.a.member.leading.switch(duo.now)
    before = duo.now
    duo.until_serves(duo.b)
    assert duo.now - before < 1.0
    duo.run(1.0)
    assert not duo.a.serves
    assert duo.a.released == [1]
    assert views(duo) == {(B, (A, B))}


def test_a_member_that_lost_confirmed_entries_takes_over_only_after_it_confirms_again() -> None:
    duo = Duo().started()
    duo.b.crash()
    duo.b.start(eligible=False)
    duo.a.crash()
    duo.run(30.0)
    assert not duo.b.serves
    duo.a.start()
    duo.until_serves(duo.a)
    duo.run(10.0)
    assert duo.b.member.eligible
    duo.a.crash()
    duo.until_serves(duo.b)


def test_a_member_that_lost_confirmed_entries_takes_no_part_while_it_has_only_some() -> None:
    """It reports the entries on its disk, so that more are sent; it has all with its first confirmed loop."""
    duo = Duo().started()
    term, end = duo.a.member.term, duo.b.disk.end
    first = make_entry(EntryId(term, 900), end, [NoteKept("n", 900)])
    second = make_entry(EntryId(term, 901), first.id, [NoteKept("n", 901)])
    duo.b.start(eligible=False)
    for loop, sent in enumerate((first, second), 900):
        said = Entries("s1", STORE, A, term, loop, second.id, end, 0, join_entries([sent.listed]))
        duo.b.member.receive(said, [bytes(part) for part in sent.parts], duo.now)
        duo.b.write()
        acks = [one for one, _ in duo.b.member.to_other(duo.now) if isinstance(one, Ack)]
        assert [(ack.loop, ack.durable) for ack in acks] == [(loop if sent is second else 0, sent.id)]
        assert duo.b.member.eligible is (sent is second)


def test_a_store_gets_its_register_and_then_its_second_member() -> None:
    duo = Duo(view=None)
    duo.a.start()
    duo.a.member.found(100, BASE, duo.a.disk, duo.now)
    duo.a.loop([], [])
    duo.b.start()
    duo.run(15.0)
    assert duo.a.member.founding is None
    assert views(duo) == {(A, (A, B))}
    duo.a.crash()
    duo.until_serves(duo.b)


def test_no_member_is_added_before_the_disk_knows_of_the_register() -> None:
    """Otherwise the first member would serve alone after its next start, and the other one by the register."""
    duo = Duo(view=None)
    duo.a.start()
    duo.a.member.found(100, BASE, duo.a.disk, duo.now)
    duo.a.member.kept = False
    duo.a.loop([], [])
    duo.b.start()
    duo.run(15.0)
    assert views(duo) == {(A, (A,))}
    duo.a.member.kept = True
    duo.run(5.0)
    assert views(duo) == {(A, (A, B))}


def test_a_lost_member_can_be_replaced_by_another() -> None:
    duo = Duo().started()
    duo.b.crash()
    third = duo.b = Node(duo, C)
    third.start()
    duo.run(20.0)
    assert views(duo) == {(A, (A,))}
    assert duo.a.member.leading is not None
    assert duo.a.member.leading.required == set()
    assert not duo.a.member.remove(A, duo.now)
    assert not duo.a.member.remove(C, duo.now)
    assert duo.a.member.remove(B, duo.now)
    duo.run(20.0)
    assert views(duo) == {(A, (A, C))}


def test_a_member_without_a_store_follows_and_asks_no_proxy() -> None:
    duo = Duo(ALONE)
    duo.b = Node(duo, C, NO_STORE)
    duo.b.start()
    duo.run(30.0)
    assert not duo.b.serves
    assert duo.b.member.to_proxies() == []
    assert duo.b.member.proposer.attempt is None


def test_a_member_ignores_messages_of_another_server_of_another_store_and_of_itself() -> None:
    duo = Duo().started()
    end = duo.a.disk.end
    for sender, store, member in (("s2", STORE, A), ("s1", "6" * 16, A), ("s1", STORE, B)):
        assert not duo.b.member.receive(Entries(sender, store, member, 1 << 50, 1, end, end), [], duo.now)
    assert duo.b.member.following is not None
    assert duo.b.member.following.known < 1 << 50


def test_a_change_of_the_members_in_sync_is_proposed_until_its_outcome_is_known() -> None:
    duo = Duo().started()
    duo.cut = {B, "votes"}
    duo.run(3.0)
    assert views(duo) == {(A, (A,))}
    duo.cut = set()
    duo.run(15.0)
    assert views(duo) == {(A, (A, B))}


def test_a_member_lost_just_before_its_proposal_is_not_in_sync() -> None:
    """It is not required from then on, and lacks the changes answered without it."""
    duo = Duo().started()
    duo.b.crash()
    duo.run(5.0)
    duo.b.start()
    while duo.a.member.proposer.attempt is None:
        duo.now += STEP
        duo.b.turn()
        duo.exchange()
        duo.a.turn()
    duo.cut = {A}
    duo.a.member.link_ended(duo.now)
    duo.a.turn()
    duo.a.put(1)
    duo.a.turn()
    duo.exchange()
    assert duo.a.released == [1]
    assert views(duo) == {(A, (A,))}


def test_a_ballot_shows_a_primary_that_it_is_replaced() -> None:
    duo = Duo().started()
    duo.a.silent, duo.cut = True, {A, B, (A, 0), (A, 1), (A, 2)}
    duo.until_serves(duo.b)
    duo.cut = {A, B}
    duo.run(15.0)
    assert not duo.a.serves


def test_a_member_that_hears_a_later_primary_ends_its_own_attempt() -> None:
    duo = Duo().started()
    term, end = duo.a.member.term, duo.b.disk.end
    duo.b.member.proposer.begin("takeover", duo.now, duo.wall_ms)
    duo.b.member.receive(Entries("s1", STORE, A, term, 1, end, end), [], duo.now)
    assert duo.b.member.proposer.attempt is not None
    duo.b.member.receive(Entries("s1", STORE, A, term + 1, 1, end, end), [], duo.now)
    assert duo.b.member.proposer.attempt is None


def test_a_switch_from_another_entry_is_refused() -> None:
    duo = Duo().started()
    term, end = duo.a.member.term, duo.b.disk.end
    duo.b.member.receive(Entries("s1", STORE, A, term, 9, end, end, hand=1), [], duo.now)
    duo.b.member.tick(duo.now + 60.0, duo.wall_ms)
    attempt = duo.b.member.proposer.attempt
    assert attempt is not None
    assert attempt.kind == "handover"
    duo.b.member.receive(Entries("s1", STORE, A, term, 10, end, end), [], duo.now + 60.0)
    assert duo.b.member.proposer.attempt is None


def test_a_former_primary_ignores_lower_terms() -> None:
    duo = Duo().started()
    member, end = duo.a.member, duo.a.disk.end
    member.deposed_by(member.term + 1)
    assert member.over
    member.follow(BASE, [], duo.now, duo.wall_ms)
    member.receive(Entries("s1", STORE, B, member.term - 1, 1, end, BASE), [], duo.now)
    assert member.following is not None
    assert member.following.known == member.term


@pytest.mark.parametrize("seed", range(16))
def test_random_lives_settle_soon_and_lose_no_answered_put(seed: int) -> None:
    random, duo, value = Random(seed), Duo().started(), 0
    for life in range(60):
        strike(duo, random, life)
        for one in (duo.a, duo.b):
            if one.serves:
                value += 1
                one.put(value)
        duo.run(random.choice((0.1, 0.5, 4.0)))
    duo.cut = set()
    for node in (duo.a, duo.b):
        if not node.up:
            node.start()
    until_settled(duo, 20.0)
    (serving,) = [node for node in (duo.a, duo.b) if node.serves]
    assert {*duo.a.released, *duo.b.released} <= {*serving.disk.values()}
    assert len(duo.a.released) + len(duo.b.released) > 3


def strike(duo: Duo, random: Random, life: int) -> None:
    """Something happens to a member, a link or a proxy, or something ends."""
    node, kind, place = random.choice((duo.a, duo.b)), random.randrange(12), random.randrange(3)
    if kind == 0 and node.up:
        node.crash()
    elif kind <= 2 and not node.up:
        node.start()
    elif kind == 3:
        duo.cut = set(random.sample([A, B, *((m, n) for m in (A, B) for n in range(3)), "votes"], 3))
    elif kind == 4:
        duo.cut = set()
    elif kind == 5 and node.serves and node.member.leading is not None:
        node.member.leading.switch(duo.now)
    elif kind == 6 and all(STORE in proxy.rows for proxy in duo.proxies):
        duo.forget(place, 100 + life)
    elif kind == 7:
        duo.restart(place)
    elif kind == 8 and node.up:
        node.member.link_ended(duo.now)


def until_settled(duo: Duo, seconds: float) -> None:
    end = duo.now + seconds
    while not duo.settled():
        assert duo.now < end, views(duo)
        duo.run(0.5)


# How soon


def seconds_until(duo: Duo, node: Node) -> float:
    before = duo.now
    duo.until_serves(node)
    return duo.now - before


def test_the_standby_takes_over_at_once_when_the_primarys_process_ends() -> None:
    duo = Duo().started()
    duo.a.crash()
    for proxy in duo.proxies:
        proxy.disconnected(STORE, A)
    duo.b.member.link_ended(duo.now)
    assert seconds_until(duo, duo.b) <= 0.3


def test_the_standby_takes_over_a_few_beats_after_the_primarys_host_is_gone() -> None:
    duo = Duo().started()
    duo.a.crash()
    assert TIMES.take - TIMES.beat <= seconds_until(duo, duo.b) <= 1.5


@pytest.mark.parametrize("ended", [True, False])
def test_a_standby_that_alone_misses_the_primary_does_not_take_over(ended: bool) -> None:
    duo = Duo().started()
    duo.cut = {A, B, (B, 0)}
    if ended:
        duo.b.member.link_ended(duo.now)
    duo.run(20.0)
    assert not duo.b.serves
    assert views(duo) == {(A, (A,))}


def test_a_primary_whose_standby_has_ended_answers_at_once() -> None:
    duo = Duo().started()
    duo.b.crash()
    duo.a.put(1)
    duo.a.member.link_ended(duo.now)
    duo.run(0.2)
    assert duo.a.released == [1]
    assert views(duo) == {(A, (A,))}


def test_a_primary_that_hands_over_learns_of_the_new_term_from_its_successor() -> None:
    duo = Duo().started()
    duo.a.silent = True  # So no proxy tells it that it is deposed.
    assert duo.a.member.leading is not None
    duo.a.member.leading.switch(duo.now)
    assert seconds_until(duo, duo.b) <= 0.3
    duo.run(0.1)
    assert not duo.a.serves
    assert duo.a.member.primary == (B, "tcp://b:1")


def test_a_restarted_member_knows_the_primary_at_once() -> None:
    duo = Duo().started()
    duo.b.crash()
    duo.run(3.0)
    duo.b.start()
    duo.run(0.1)
    assert duo.b.member.primary == (A, "tcp://a:1")


def test_a_standby_that_hears_its_primary_sends_nothing_to_proxies() -> None:
    duo = Duo().started()
    assert duo.b.member.to_proxies() == []
    duo.b.member.tick(duo.now, duo.wall_ms)
    assert duo.b.member.to_proxies() == []


@pytest.mark.parametrize("seconds", range(2, 26, 2))
def test_a_returned_member_takes_over_as_soon_as_any_other_at_any_time(seconds: int) -> None:
    """Its own ballot, by which it makes sure that it is primary no more, must not have it wait afterwards."""
    duo = Duo().started()
    duo.a.crash()
    duo.until_serves(duo.b)
    duo.a.start()
    duo.run(seconds)
    assert views(duo) == {(B, (A, B))}
    duo.b.crash()
    assert seconds_until(duo, duo.a) <= 1.5


def test_a_standby_catches_up_by_more_than_its_limit_of_unapplied_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    duo = Duo().started()
    duo.b.crash()
    duo.run(5.0)
    for value in range(200):
        duo.a.put(value)
    size = duo.a.disk.chain[-1].size
    monkeypatch.setattr(follower, "STAGED_BYTES_MAX", 20 * size)
    monkeypatch.setattr(primary, "WINDOW_BYTES_MAX", 8 * size)
    duo.b.start()
    duo.run(20.0)
    assert duo.b.disk.end == duo.a.disk.end
    assert views(duo) == {(A, (A, B))}


def test_a_view_that_one_proxy_accepted_from_a_dying_member_hides_no_primary() -> None:
    """Its clock was fast, so that its ballot is above that of its successor, which the proxy missed."""
    duo = Duo(TAKEN)
    ahead = BOTH._replace(term=900_000)
    duo.proxies[2].rows[STORE] = RegisterRow(STORE, 900_000, 900_000, ahead)
    duo.a.start()
    duo.run(0.5)
    assert duo.a.member.primary == (B, "tcp://b:1")
