"""The primary's side, message by message: held answers, sent entries, required and proposed members."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from pubsub.protocol.standby import ROOT, Ack, EntryId, Follow, join_ids, split_entries
from pubsub.server.standby.replication import primary as leadings
from pubsub.server.standby.replication.entries import Entry, changes_of
from pubsub.server.standby.replication.primary import HELD_BYTES_MAX, HELD_TURNS_MAX, Leading
from pubsub.server.topic.changes import NoteKept
from tests.standby.pair_disk import File

NAMES = ("s1", "0" * 16)
PUT = [NoteKept("x", 1)]


class Primary:
    """A primary of term 5 on a file in memory, and its standby B."""

    def __init__(self, in_sync: str = "AB", base: EntryId = ROOT) -> None:
        self.file = File()
        self.file.base = base
        self.core = Leading(*NAMES, "A", 5, in_sync, base, self.file, 0.0, 2.5, 3.0)
        self.now = 0.0

    def loop(self, *out: Any, changes: Any = (), size: int = 1, full: bool = False) -> Entry | None:
        """One loop, up to where it is held."""
        entry = self.core.begin(changes)
        if entry is not None:
            self.file.append([entry], own=True)
        if full:
            self.file.cut(self.core.taken_back())
        else:
            self.core.committed()
        self.core.hold(out, size)
        return entry

    def ack(self, durable: EntryId | None = None, loop: int | None = None, **more: Any) -> list[Any]:
        """B acknowledges, everything by default; returns the released answers."""
        loop = self.core.loop if loop is None else loop
        term = more.pop("term", 5)
        ack = Ack(*NAMES, more.pop("member", "B"), term, loop, self.core.end if durable is None else durable, **more)
        self.core.acknowledged(ack, self.now)
        return self.core.released()

    def follow(
        self, *ids: EntryId, member: str = "B", known: int = 5, token: int = 7, gap: int = 0, form: int = 1
    ) -> None:
        self.core.followed(Follow(*NAMES, member, known, token, gap, join_ids(ids), form=form), self.now)

    def sent(self) -> list[tuple[int, list[EntryId]]]:
        """The loop of each ENTRY, and its entries."""
        return [(message.loop, [one.id for one in split_entries(message.body)]) for message, _ in self.core.outgoing()]

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.core.tick(self.now)

    @property
    def proposal(self) -> str | None:
        found = self.core.proposal(self.now)
        return None if found is None else "".join(sorted(found))


def joined() -> Primary:
    """A pair that is in sync, with one entry."""
    one = Primary()
    one.loop(changes=PUT)
    one.follow(ROOT)
    one.sent()
    one.ack()
    return one


def test_a_primary_alone_holds_no_answer_and_sends_no_entry() -> None:
    one = Primary("A")
    one.loop("a", changes=PUT)
    assert one.core.released() == ["a"]
    assert (one.sent(), one.proposal, one.core.full) == ([], None, False)


def test_the_answers_of_a_loop_are_held_in_order_until_the_standby_has_its_entry() -> None:
    one = joined()
    first = one.loop("a", "b", changes=PUT)
    one.loop("c")
    assert first is not None
    assert (one.core.released(), one.core.held) == ([], 2)
    assert one.sent() == [(3, [first.id])]
    assert one.ack(loop=1) == []
    assert one.ack(loop=2) == ["a", "b"]
    assert one.ack(loop=3) == ["c"]


def test_a_term_begins_with_an_entry_if_only_an_empty_one() -> None:
    one = Primary("A", EntryId(4, 7))
    first = one.loop(full=True)
    second = one.loop()
    assert first is not None
    assert second is not None
    assert (first.id, first.previous) == ((5, 1), (4, 7))
    assert (second.id, second.previous, changes_of(second)) == ((5, 2), (4, 7), [])
    assert one.loop() is None


def test_an_acknowledgement_without_the_loop_releases_nothing() -> None:
    one = joined()
    one.loop("a", changes=PUT)
    assert one.ack(loop=0) == []


def test_answers_of_a_reverted_loop_wait_for_a_later_confirmation() -> None:
    one = joined()
    entry = one.core.begin(PUT)
    assert entry is not None
    one.file.append([entry], own=True)
    one.sent()
    asked = one.core.loop
    assert one.ack(loop=asked, durable=entry.id) == []
    one.file.cut(one.core.taken_back())
    one.core.hold(["full"], 1)
    assert one.core.released() == []
    assert one.ack(loop=one.core.loop) == ["full"]


def test_a_dropped_entry_is_never_committed_and_the_next_names_its_predecessor() -> None:
    one = joined()
    end = one.core.end
    entry = one.core.begin(PUT)
    assert entry is not None
    one.file.append([entry], own=True)
    one.sent()
    one.ack(durable=entry.id)
    one.file.cut(one.core.taken_back())
    after = one.loop(changes=PUT)
    assert after is not None
    assert (after.previous, after.id.number) == (end, entry.id.number + 1)
    ((message, entries),) = one.core.outgoing()
    assert (message.committed, [each.id for each in entries]) == (end, [after.id])
    one.ack(durable=entry.id, loop=0)  # Late: it is of the one that was taken back.
    one.core.beat()
    assert one.core.outgoing()[0][0].committed == end


def test_a_higher_term_deposes_the_primary_and_no_held_answer_is_sent() -> None:
    for tell in (
        lambda one: one.ack(term=6),
        lambda one: one.follow(ROOT, known=6),
        lambda one: one.core.learn_term(6),
    ):
        one = joined()
        one.loop("a")
        tell(one)
        assert one.core.deposed
        assert one.ack() == []
        assert (one.sent(), one.proposal, one.core.to_copy()) == ([], None, None)


def test_messages_of_a_lower_term_and_of_another_member_are_ignored() -> None:
    one = joined()
    one.loop("a")
    assert one.ack(term=4) == one.ack(member="C") == []
    assert not one.core.learn_term(5)


def test_a_primary_takes_no_more_beyond_each_limit() -> None:
    one = joined()
    for _ in range(HELD_TURNS_MAX):
        assert not one.core.full
        one.loop("a")
    assert one.core.full
    one.ack()
    assert not one.core.full
    one.loop("a", size=HELD_BYTES_MAX)
    assert one.core.full
    one.ack()
    assert not one.core.full


def test_entries_that_the_standby_lacks_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    one = joined()
    entry = one.loop(changes=PUT)
    assert entry is not None
    monkeypatch.setattr(leadings, "HELD_BYTES_MAX", 3 * entry.size)
    one.loop(changes=PUT)
    assert not one.core.full
    last = one.loop(changes=PUT, full=True)
    assert last is not None
    assert not one.core.full
    one.loop(changes=PUT)
    assert one.core.full
    one.ack(loop=0)
    assert not one.core.full


def test_entries_that_a_dropped_standby_lacks_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    one = joined()
    entry = one.loop(changes=PUT)
    assert entry is not None
    monkeypatch.setattr(leadings, "HELD_BYTES_MAX", entry.size)
    assert one.core.full
    one.core.chosen("A")
    assert not one.core.full


def test_unacknowledged_entries_have_a_limit_and_acknowledgements_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Primary()
    entries = [one.loop(changes=PUT) for _ in range(10)]
    ids = [entry.id for entry in entries if entry is not None]
    monkeypatch.setattr(leadings, "WINDOW_BYTES_MAX", 4 * sum(entry.size for entry in entries if entry) // 10)
    one.follow(ROOT)
    assert [each for _, some in one.sent() for each in some] == ids[:6]  # Three at a time are read.
    assert one.sent() == []
    one.ack(durable=ids[4], loop=0)
    assert [each for _, some in one.sent() for each in some] == ids[6:9]
    one.follow(ids[4], gap=1)
    assert [each for _, some in one.sent() for each in some][:1] == [ids[5]]


def test_a_loop_without_a_change_asks_and_a_heartbeat_asks_again() -> None:
    one = joined()
    assert one.sent() == []
    one.loop("a")
    assert one.sent() == [(2, [])]
    assert one.sent() == []
    one.core.beat()
    assert one.sent() == [(2, [])]


def test_a_standby_that_acknowledges_nothing_is_dropped_even_if_it_sends_follows() -> None:
    one = joined()
    one.sleep(2.4)
    one.follow(one.core.end)
    assert one.proposal is None
    one.sleep(0.2)
    assert one.proposal == "A"
    one.core.proposed("A")
    one.loop("a")
    assert one.core.released() == []
    one.core.chosen("A")
    assert one.core.released() == ["a"]
    assert one.proposal is None


def test_a_returned_standby_is_proposed_while_its_removal_is_undecided() -> None:
    one = joined()
    one.sleep(3.0)
    one.core.proposed("A")
    one.loop("a")
    one.sent()
    assert one.ack() == ["a"]
    assert one.proposal == "AB"
    one.core.chosen("AB")
    assert one.proposal is None


def test_a_joining_standby_is_required_first_and_proposed_after_it_confirms() -> None:
    one = Primary("A")
    one.loop(changes=PUT)
    one.follow(ROOT)
    one.sleep(0.1)
    assert one.core.required == set()  # It has confirmed nothing yet.
    one.sent()
    one.ack()
    one.sleep(0.1)
    assert (one.core.required, one.proposal) == ({"B"}, None)
    one.loop("a")
    assert one.core.released() == []
    one.ack(loop=1)  # From before it was required.
    assert one.proposal is None
    assert one.ack() == ["a"]
    assert one.proposal == "AB"
    one.core.proposed("AB")
    one.loop("b")
    one.sleep(3.0)  # It is silent: whether it was chosen is not known, so it stays required.
    assert (one.core.required, one.proposal) == ({"B"}, "A")
    assert one.core.released() == []
    one.core.chosen("A")
    assert one.core.released() == ["b"]


def test_a_joining_standby_that_goes_silent_before_its_proposal_is_not_required() -> None:
    one = Primary("A")
    one.loop(changes=PUT)
    one.follow(ROOT)
    one.sent()
    one.ack()
    one.sleep(0.1)
    one.loop("a")
    one.sleep(3.0)
    assert (one.core.required, one.proposal, one.core.released()) == (set(), None, ["a"])


def test_a_joining_standby_that_keeps_failing_is_required_less_and_less_often() -> None:
    one = Primary("A")
    one.loop(changes=PUT)
    began = []
    for _ in range(600):
        one.now += 0.1
        one.follow(ROOT, one.core.end)
        if not one.core.required:
            one.sent()
            one.ack(loop=one.core.loop)
            one.core.tick(one.now)
            if one.core.required:
                began.append(one.now)
        one.core.tick(one.now)  # From when it is required on it acknowledges nothing.
    waits = [round((later - before) / 2.5) for before, later in pairwise(began)]
    assert waits[:4] == [1, 2, 4, 8]


def test_a_standby_with_an_older_disk_is_dropped_and_resumes_at_its_own_entry() -> None:
    one = joined()
    for _ in range(2):
        assert one.proposal is None
        one.follow(ROOT)
    assert one.proposal == "A"
    one.core.proposed("A")
    one.core.chosen("A")
    one.follow(ROOT, gap=1)
    one.sleep(0.1)
    assert one.core.required == set()
    assert one.sent() == [(1, [EntryId(5, 1)])]
    one.ack()
    one.sleep(0.1)
    assert one.core.required == {"B"}


def test_a_standby_with_a_full_disk_is_dropped_and_returns_when_it_has_space() -> None:
    one = joined()
    entry = one.loop(changes=PUT)
    assert entry is not None
    one.sent()
    one.ack(durable=EntryId(5, 1), loop=0, full=1)
    assert one.proposal == "A"
    one.core.chosen("A")
    one.follow(EntryId(5, 1), gap=1)
    one.sent()
    one.ack()
    one.sleep(0.1)
    assert one.core.required == {"B"}


def test_a_standby_of_another_history_is_dropped_first_and_then_copied() -> None:
    one = joined()
    one.follow(EntryId(4, 9), EntryId(4, 10), token=99)
    assert (one.proposal, one.core.to_copy()) == ("A", None)
    one.core.proposed("A")
    assert one.core.to_copy() is None
    one.core.chosen("A")
    assert one.core.to_copy() == ("B", 99)
    one.loop(changes=PUT)
    assert one.sent() == [(2, [])]
    one.sleep(0.1)
    assert one.core.required == set()
    one.follow(EntryId(5, 1))
    assert one.core.to_copy() is None
    assert one.sent() == [(2, [EntryId(5, 2)])]


def test_a_standby_that_needs_entries_no_longer_in_the_file_is_copied() -> None:
    one = joined()
    one.loop(changes=PUT)
    one.file.kept = 1
    one.file.trim()
    one.follow(ROOT)
    assert one.proposal == "A"


def test_a_second_standby_waits_until_the_first_is_given_up() -> None:
    one = joined()
    one.follow(ROOT, member="C")
    assert one.ack(member="C") == []
    one.now += 3.0
    one.follow(ROOT, member="C", gap=1)
    assert (one.sent(), one.core.required) == ([], {"B"})  # B is silent, and may have to be waited for.
    one.ack()
    one.core.chosen("A")
    one.follow(ROOT, member="C")
    one.loop(changes=PUT)
    one.ack()  # B is still alive.
    one.sleep(3.0)
    one.follow(ROOT, member="C", gap=1)
    assert one.sent()[0][1] == [EntryId(5, 1), EntryId(5, 2)]
    one.ack(member="C")
    one.sleep(0.1)
    assert one.core.required == {"C"}


def test_the_first_of_two_standbys_is_copied_until_it_stops_asking() -> None:
    """It acknowledges nothing meanwhile. In turns, each beginning anew, neither would ever be done."""
    one = Primary("A")
    one.loop(changes=PUT)
    for _ in range(10):
        for member, token in (("B", 8), ("C", 9)):
            one.follow(EntryId(4, 9), member=member, token=token)
            assert one.core.to_copy() == ("B", 8)
        one.sleep(1.0)
    one.sleep(3.0)
    one.follow(EntryId(4, 9), member="C", token=9)
    assert one.core.to_copy() == ("C", 9)


def test_a_planned_change_hands_over_when_no_answer_is_held_and_is_given_up_in_time() -> None:
    one = joined()
    one.loop("a", changes=PUT)
    assert one.core.switch(one.now)
    assert one.core.stalled
    assert [message.hand for message, _ in one.core.outgoing()] == [0]
    one.ack()
    ((message, _),) = one.core.outgoing()
    assert (message.hand, message.end) == (1, one.core.end)
    assert one.core.outgoing() == []
    one.core.beat()
    assert [message.hand for message, _ in one.core.outgoing()] == [1]
    for _ in range(4):
        one.sleep(1.0)
        one.ack()
    assert not one.core.stalled
    one.core.beat()
    assert [message.hand for message, _ in one.core.outgoing()] == [0]


def test_a_first_standby_of_an_idle_server_is_in_sync_at_once() -> None:
    one = Primary("A", EntryId(5, 0))
    one.follow(EntryId(5, 0))
    one.sleep(0.0)
    for _ in range(2):  # To be near, and then to have all that there was when it was required.
        assert one.sent() == [(one.core.loop, [])]
        one.ack()
        one.sleep(0.0)
    assert one.proposal == "AB"


@pytest.mark.parametrize("in_sync", ["AB", "A"])
def test_a_confirmed_answer_is_not_sent_once_a_later_term_is_known(in_sync: str) -> None:
    one = Primary(in_sync)
    one.loop("a", changes=PUT)
    one.core.acknowledged(Ack(*NAMES, "B", 5, one.core.loop, one.core.end), one.now)
    one.core.learn_term(6)
    assert one.core.released() == []


def test_a_primary_without_a_standby_cannot_switch() -> None:
    assert not Primary("A").core.switch(0.0)
