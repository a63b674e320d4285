"""Two members, composed as they are shipped, and the proxies' registers: no sockets, and disks of a few lines.

Each message goes through the codec; one that is sent is heard at once, unless the link is cut. What a client was
answered is on the disk of whoever serves later.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from pubsub.protocol import decode, encode
from pubsub.protocol.batch import Buffer
from pubsub.protocol.register import View, VoteOutcome
from pubsub.protocol.standby import Entries, EntryId
from pubsub.proxy.register import Registers
from pubsub.proxy.remembered import RegisterRow, RouteChanges
from pubsub.server.standby.entries import Entry, changes_of
from pubsub.server.standby.member import NO_STORE, Member, Role
from pubsub.server.standby.register import Identity
from pubsub.server.standby.watch import Times
from pubsub.server.topic.changes import NoteKept
from tests.standby.cast import ALONE, BOTH, STORE, A, B

TIMES = Times(heartbeat=1.0, patience=3.0, beat=0.25, silence=0.625, switch=3.0, doubt=0.5, take=1.0, sticky=0.5)
STEP = 0.05
BASE = EntryId(100, 0)
C = "c" * 16


def travelled(message: Any) -> Any:
    return decode(*encode(message))


class Disk:
    """A member's: the entries behind `base`, up to where the store has them."""

    def __init__(self) -> None:
        self.base = BASE
        self.chain: list[Entry] = []
        self.applied = BASE

    @property
    def end(self) -> EntryId:
        return self.chain[-1].id if self.chain else self.base

    def holds(self, entry: EntryId) -> bool:
        return entry == self.base or any(one.id == entry for one in self.chain)

    def behind(self, entry: EntryId) -> list[Entry]:
        return [one for one in self.chain if one.id > entry]

    def read(self, after: EntryId, bytes_max: int, entries_max: int) -> list[Entry]:
        return self.behind(after)[:entries_max]

    def cut(self, end: EntryId) -> None:
        self.chain = [one for one in self.chain if one.id <= end]

    def values(self) -> list[int]:
        changes = [change for one in self.chain for change in changes_of(one)]
        return [one.value for one in changes if isinstance(one, NoteKept) and isinstance(one.value, int)]


class Node:
    """A member and what its shell does."""

    def __init__(self, duo: Duo, name: str, store: str = STORE) -> None:
        self.duo, self.name, self.store, self.disk = duo, name, store, Disk()
        self.up, self.silent = False, False
        self.terms: list[int] = []
        self.released: list[int] = []

    def start(self, *, eligible: bool = True) -> None:
        duo = self.duo
        identity = Identity("s1", self.store, self.name, f"tcp://{self.name[0]}:1")
        self.member = Member(identity, duo.names, TIMES, Random(self.name), duo.now, registered=True, eligible=eligible)
        self.up = True
        self.member.follow(self.disk.applied, self.disk.behind(self.disk.applied), duo.now, duo.wall_ms)
        self.told_at = duo.now

    def crash(self) -> None:
        """The primary's own commits are on its disk, and what it wrote behind them is not."""
        self.up = False
        if self.member.leading is not None:
            self.disk.cut(self.disk.applied)

    @property
    def serves(self) -> bool:
        return self.up and self.member.role is Role.PRIMARY and not self.member.over

    def put(self, value: int) -> None:
        """One loop of a primary; the value is in `released` when a client would be answered."""
        leading = self.member.leading
        assert leading is not None
        self.loop([value], [NoteKept("n", value)])

    def loop(self, out: list[int], changes: Sequence[Any]) -> None:
        leading = self.member.leading
        assert leading is not None
        entry = leading.begin(changes)
        if entry is not None:
            self.disk.chain.append(entry)
        self.duo.exchange()
        self.disk.applied = self.disk.end
        leading.committed()
        leading.hold(out, 1)

    def turn(self) -> None:
        member, now = self.member, self.duo.now
        member.tick(now, self.duo.wall_ms)
        if member.role is Role.TAKING:
            assert member.following is not None
            self.disk.applied = self.disk.end
            self.terms.append(member.term)
            member.lead(self.disk.end, self.disk, now)
            self.loop([], [])
        if member.over:
            self.disk.cut(self.disk.applied)
            member.follow(self.disk.applied, [], now, self.duo.wall_ms)
        if member.role is Role.PRIMARY and now >= self.told_at and not self.silent:
            self.told_at = now + TIMES.heartbeat
            for place, proxy in enumerate(self.duo.proxies):
                if (self.name, place) not in self.duo.cut and not proxy.heard(STORE, self.name, member.term, now):
                    member.deposed_by(member.term + 1)
        if member.leading is not None:
            self.released += member.leading.released()

    def write(self) -> None:
        following = self.member.following
        if following is None:
            return
        write = following.to_write()
        if write is not None:
            if write.cut is not None:
                self.disk.cut(write.cut)
            self.disk.chain += write.entries
            following.synced(self.disk.end)
        while entries := following.to_apply():
            self.disk.applied = entries[-1].id
            following.applied_to(entries[-1].id)


class Duo:
    """Both members and three proxies, or as many as are asked for."""

    def __init__(self, view: View | None = BOTH, proxies: int = 3) -> None:
        self.now = 50.0
        self.names = [f"tcp://p{place}:2" for place in range(proxies)]
        rows = [] if view is None else [RegisterRow(STORE, 100, 100, view)]
        self.proxies = [Registers(f"p{n}", f"{n:016x}", rows, RouteChanges(), 3.0) for n in range(proxies)]
        self.a, self.b = Node(self, A), Node(self, B)
        self.cut: set[Any] = set()
        """Names of members whose link to the other is cut, or (member, place of a proxy)."""

    @property
    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def exchange(self) -> None:
        for node, other in ((self.a, self.b), (self.b, self.a)):
            if not node.up:
                continue
            for place, message in node.member.to_proxies():
                if (node.name, place) not in self.cut:
                    vote = self.proxies[place].handle(travelled(message), self.now)
                    self.answered(place, node)
                    if "votes" not in self.cut or vote.outcome is not VoteOutcome.ACCEPTED:
                        node.member.vote(place, travelled(vote), self.now)
            for said, entries in node.member.to_other(self.now):
                frames: list[Buffer] = [bytes(part) for entry in entries for part in entry.parts]
                if other.up and node.name not in self.cut:
                    other.member.hear(travelled(said), frames, self.now)
                    other.write()

    def answered(self, place: int, asking: Node) -> None:
        """A proxy that is asked has the primary answer at once."""
        for node in (self.a, self.b):
            if node is not asking and node.serves and not node.silent and (node.name, place) not in self.cut:
                self.proxies[place].heard(STORE, node.name, node.member.term, self.now)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            for node in (self.a, self.b):
                if node.up:
                    node.turn()
            for _ in range(3):
                self.exchange()
            assert not (self.a.serves and self.b.serves) or self.a.member.term != self.b.member.term
            for node in (self.a, self.b):
                leading = node.member.leading if node.up else None
                if leading is not None and not leading.deposed:
                    assert {*node.member.proposer.required} <= {node.name, *leading.required}

    def until_serves(self, node: Node, seconds: float = 30.0) -> None:
        for _ in range(round(seconds / STEP)):
            if node.serves:
                return
            self.run(STEP)
        raise AssertionError("does not serve")

    def started(self) -> Duo:
        self.a.start()
        self.b.start()
        self.until_serves(self.a)
        self.run(5.0)
        return self


def views(duo: Duo) -> set[tuple[str, tuple[str, ...]]]:
    return {(row.view.primary, row.view.in_sync) for one in duo.proxies if (row := one.rows[STORE]).view is not None}


def test_who_the_register_names_serves_again_and_the_other_one_follows() -> None:
    duo = Duo().started()
    assert not duo.b.serves
    assert duo.b.disk.end == duo.a.disk.end
    assert views(duo) == {(A, (A, B))}


def test_an_answer_waits_until_the_standby_has_it() -> None:
    duo = Duo().started()
    duo.cut = {A}
    duo.a.put(1)
    duo.a.turn()
    assert duo.a.released == []
    duo.cut = set()
    duo.run(1.0)
    assert duo.a.released == [1]
    assert duo.b.disk.values() == [1]


def test_the_standby_takes_over_with_all_that_was_answered_and_the_old_primary_follows_it() -> None:
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


def test_a_primary_goes_on_alone_once_a_majority_of_the_proxies_has_accepted_that() -> None:
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


def test_a_member_that_was_dropped_does_not_take_over_and_is_in_sync_again_when_it_has_all() -> None:
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


def test_a_primary_that_nobody_hears_answers_nothing_after_the_other_has_taken_over_and_steps_down() -> None:
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


def test_a_planned_switch_leaves_both_in_sync() -> None:
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


def test_who_lost_what_it_confirmed_does_not_take_over_until_it_has_confirmed_again() -> None:
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


def test_a_member_that_is_gone_for_good_makes_room_for_another_one() -> None:
    duo = Duo().started()
    duo.b.crash()
    third = duo.b = Node(duo, C)
    third.start()
    duo.run(20.0)
    assert views(duo) == {(A, (A,))}
    assert duo.a.member.stranger == C
    assert duo.a.member.leading is not None
    assert duo.a.member.leading.required == set()
    assert not duo.a.member.remove(A)
    assert not duo.a.member.remove(C)
    assert duo.a.member.remove(B)
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


def test_messages_of_another_server_store_or_of_itself_are_not_for_it() -> None:
    duo = Duo().started()
    end = duo.a.disk.end
    for sender, store, member in (("s2", STORE, A), ("s1", "6" * 16, A), ("s1", STORE, B)):
        assert not duo.b.member.hear(Entries(sender, store, member, 1 << 50, 1, end, end), [], duo.now)
    assert duo.b.member.following is not None
    assert duo.b.member.following.known < 1 << 50


def test_a_change_of_who_is_in_sync_is_proposed_until_its_outcome_is_known() -> None:
    duo = Duo().started()
    duo.cut = {B, "votes"}
    duo.run(3.0)
    assert views(duo) == {(A, (A,))}
    duo.cut = set()
    duo.run(15.0)
    assert views(duo) == {(A, (A, B))}


def test_a_ballot_tells_a_primary_that_it_is_replaced() -> None:
    duo = Duo().started()
    duo.a.silent, duo.cut = True, {A, B, (A, 0), (A, 1), (A, 2)}
    duo.until_serves(duo.b)
    duo.cut = {A, B}
    duo.run(15.0)
    assert not duo.a.serves


def test_a_proxy_that_lost_its_data_gets_its_vote_back_when_both_members_have_forgotten_it() -> None:
    duo = Duo().started()
    duo.proxies[0] = Registers("p0", f"{7:016x}", [], RouteChanges(), 3.0)
    duo.cut = {A}
    duo.run(0.5)
    assert STORE not in duo.proxies[0].rows
    duo.cut = set()
    duo.run(5.0)
    assert views(duo) == {(A, (A, B))}


def test_the_only_proxy_gets_its_vote_back_from_the_primary_on_an_operators_word() -> None:
    duo = Duo(proxies=1).started()
    duo.proxies[0] = Registers("p0", f"{7:016x}", [], RouteChanges(), 3.0)
    assert duo.b.member.readmission.reset(duo.wall_ms) == "the_proxy_was_not_heard_to_have_no_vote"
    duo.run(5.0)
    assert STORE not in duo.proxies[0].rows
    assert duo.a.member.readmission.reset(duo.wall_ms) == ""
    duo.run(1.0)
    assert views(duo) == {(A, (A, B))}
    duo.a.crash()
    duo.until_serves(duo.b)


def test_a_primary_that_was_replaced_gives_the_only_proxy_no_vote() -> None:
    """Its view is not the last one that the proxy had accepted: the other one, which serves, does not confirm it."""
    duo = Duo(proxies=1).started()
    duo.a.silent, duo.cut = True, {A, B, (A, 0)}
    duo.until_serves(duo.b)
    duo.proxies[0] = Registers("p0", f"{7:016x}", [], RouteChanges(), 3.0)
    duo.b.silent, duo.cut = True, {(B, 0)}
    duo.run(5.0)
    assert duo.a.member.readmission.reset(duo.wall_ms) == f"member_{B}_has_not_answered"
    assert STORE not in duo.proxies[0].rows


def test_who_hears_a_later_primary_ends_its_own_attempt() -> None:
    duo = Duo().started()
    term, end = duo.a.member.term, duo.b.disk.end
    duo.b.member.proposer.begin("take", duo.now, duo.wall_ms)
    duo.b.member.hear(Entries("s1", STORE, A, term, 1, end, end), [], duo.now)
    assert duo.b.member.proposer.attempt is not None
    duo.b.member.hear(Entries("s1", STORE, A, term + 1, 1, end, end), [], duo.now)
    assert duo.b.member.proposer.attempt is None


def test_a_switch_that_goes_on_from_another_entry_is_not_taken() -> None:
    duo = Duo().started()
    term, end = duo.a.member.term, duo.b.disk.end
    duo.b.member.hear(Entries("s1", STORE, A, term, 9, end, end, hand=1), [], duo.now)
    duo.b.member.tick(duo.now + 60.0, duo.wall_ms)
    attempt = duo.b.member.proposer.attempt
    assert attempt is not None
    assert attempt.kind == "hand"
    duo.b.member.hear(Entries("s1", STORE, A, term, 10, end, end), [], duo.now + 60.0)
    assert duo.b.member.proposer.attempt is None


def test_who_was_primary_takes_nothing_of_a_term_below_its_own() -> None:
    duo = Duo().started()
    member, end = duo.a.member, duo.a.disk.end
    member.deposed_by(member.term + 1)
    assert member.over
    member.follow(BASE, [], duo.now, duo.wall_ms)
    member.hear(Entries("s1", STORE, B, member.term - 1, 1, end, BASE), [], duo.now)
    assert member.following is not None
    assert member.following.known == member.term


@pytest.mark.parametrize("seed", range(12))
def test_random_lives(seed: int) -> None:
    random, duo, value = Random(seed), Duo().started(), 0
    for _ in range(60):
        node = random.choice((duo.a, duo.b))
        kind = random.randrange(8)
        if kind == 0 and node.up:
            node.crash()
        elif kind <= 2 and not node.up:
            node.start()
        elif kind == 3:
            duo.cut = set(random.sample([A, B, *((m, n) for m in (A, B) for n in range(3)), "votes"], 3))
        elif kind == 4:
            duo.cut = set()
        for one in (duo.a, duo.b):
            if one.serves:
                value += 1
                one.put(value)
        duo.run(random.choice((0.1, 0.5, 4.0)))
    duo.cut = set()
    for node in (duo.a, duo.b):
        if not node.up:
            node.start()
    duo.run(60.0)
    serving = [node for node in (duo.a, duo.b) if node.serves]
    assert len(serving) == 1
    assert {*duo.a.released, *duo.b.released} <= {*serving[0].disk.values()}
    assert len(duo.a.released) + len(duo.b.released) > 3


# How soon


def seconds_until(duo: Duo, node: Node) -> float:
    before = duo.now
    duo.until_serves(node)
    return duo.now - before


def test_where_the_primarys_process_has_ended_the_standby_takes_over_at_once() -> None:
    duo = Duo().started()
    duo.a.crash()
    for proxy in duo.proxies:
        proxy.unheard(STORE, A)
    duo.b.member.link_ended(duo.now)
    assert seconds_until(duo, duo.b) <= 0.3


def test_where_the_primarys_host_is_gone_the_standby_takes_over_after_a_few_beats_of_their_link() -> None:
    duo = Duo().started()
    duo.a.crash()
    assert TIMES.take - TIMES.beat <= seconds_until(duo, duo.b) <= 1.5


@pytest.mark.parametrize("ended", [True, False])
def test_a_standby_that_alone_does_not_hear_the_primary_does_not_take_over(ended: bool) -> None:
    duo = Duo().started()
    duo.cut = {A, B, (B, 0)}
    if ended:
        duo.b.member.link_ended(duo.now)
    duo.run(20.0)
    assert not duo.b.serves
    assert views(duo) == {(A, (A,))}


def test_a_primary_whose_standby_has_ended_goes_on_at_once() -> None:
    duo = Duo().started()
    duo.b.crash()
    duo.a.put(1)
    duo.a.member.link_ended(duo.now)
    duo.run(0.2)
    assert duo.a.released == [1]
    assert views(duo) == {(A, (A,))}


def test_who_hands_over_hears_of_the_new_term_from_its_successor_and_finds_it_at_once() -> None:
    duo = Duo().started()
    duo.a.silent = True  # So no proxy tells it that it is deposed.
    assert duo.a.member.leading is not None
    duo.a.member.leading.switch(duo.now)
    assert seconds_until(duo, duo.b) <= 0.3
    duo.run(0.1)
    assert not duo.a.serves
    assert duo.a.member.primary == (B, "tcp://b:1")


def test_a_member_that_starts_again_knows_at_once_where_the_primary_is() -> None:
    duo = Duo().started()
    duo.b.crash()
    duo.run(3.0)
    duo.b.start()
    duo.run(0.1)
    assert duo.b.member.primary == (A, "tcp://a:1")


def test_a_standby_that_hears_its_primary_asks_no_proxy() -> None:
    duo = Duo().started()
    assert duo.b.member.to_proxies() == []
    duo.b.member.tick(duo.now, duo.wall_ms)
    assert duo.b.member.to_proxies() == []
