"""The standby's side, message by message: entries that it appends, acknowledges, applies and requests.

The rule is docs/explanation/failover.md, F3.
"""

from __future__ import annotations

from random import Random

import pytest

from pubsub.protocol.standby import IDS_MAX, ROOT, Ack, Entries, EntryId, Follow, split_ids
from pubsub.server.standby.replication import follower as followings
from pubsub.server.standby.replication.entries import Entry, make_entry
from pubsub.server.standby.replication.follower import Following
from pubsub.server.topic.changes import NoteKept
from tests.standby.mutants import NoLate

NAMES = ("s1", "0" * 16)


def entry(term: int, number: int, previous: Entry | None = None) -> Entry:
    return make_entry(EntryId(term, number), previous.id if previous else ROOT, [NoteKept("x", number)])


def chain(*ids: tuple[int, int]) -> list[Entry]:
    out: list[Entry] = []
    for term, number in ids:
        out.append(entry(term, number, out[-1] if out else None))
    return out


ONE, TWO, THREE = chain((5, 1), (5, 2), (5, 3))
INSTEAD = entry(5, 4, ONE)
"""An entry after TWO and its successors were dropped."""


class Standby:
    """A standby B; everything that is to be written is written and synced when `sync` is called."""

    def __init__(self, applied: EntryId = ROOT, staged: list[Entry] | None = None, core: type = Following) -> None:
        self.now = 10.0
        self.file = list(staged or [])
        self.core: Following = core(*NAMES, "B", applied, self.file, Random(1), self.now, 1.0)
        self.core.outgoing(self.now)

    def hear(self, *entries: Entry, term: int = 5, loop: int = 1, end: EntryId | None = None, **more: object) -> None:
        last = end or (entries[-1].id if entries else self.core.end)
        committed = more.pop("committed", ROOT)
        message = Entries(*NAMES, "A", term, loop, last, committed, **more)  # type: ignore[arg-type]
        self.core.entries(message, entries, self.now)

    def write(self) -> EntryId | None:
        """Write the entries; returns the end that must be synced."""
        write = self.core.to_write()
        if write is None:
            return None
        if write.cut is not None:
            while self.file and self.file[-1].id > write.cut:
                self.file.pop()
        self.file += write.entries
        return self.file[-1].id if self.file else self.core.applied

    def sync(self) -> None:
        end = self.write()
        if end is not None:
            self.core.synced(end)

    def apply(self) -> list[Entry]:
        entries = self.core.to_apply()
        if entries:
            self.core.applied_to(entries[-1].id)
        return entries

    def acks(self) -> list[tuple[int, int, EntryId]]:
        """Term, loop and durable entry of each ACK."""
        out = self.core.outgoing(self.now)
        return [(one.term, one.loop, one.durable) for one in out if isinstance(one, Ack)]

    def follows(self) -> list[Follow]:
        return [one for one in self.core.outgoing(self.now) if isinstance(one, Follow)]


def test_a_standby_acknowledges_only_synced_entries() -> None:
    one = Standby()
    one.hear(ONE, TWO, loop=7)
    assert one.acks() == []
    end = one.write()
    assert one.acks() == []
    assert end == TWO.id
    one.core.synced(ONE.id)
    assert one.acks() == [(5, 0, ONE.id)]
    one.core.synced(TWO.id)
    assert one.acks() == [(5, 7, TWO.id)]
    assert one.file == [ONE, TWO]


def test_a_question_without_entries_is_confirmed_at_once_if_all_entries_are_there() -> None:
    one = Standby(ROOT, [ONE])
    one.hear(loop=3)
    assert one.acks() == [(5, 3, ONE.id)]
    one.hear(loop=4, end=TWO.id)
    assert one.acks() == []


def test_one_acknowledgement_is_enough_for_several_questions() -> None:
    one = Standby()
    one.hear(ONE, loop=1)
    one.hear(loop=2)
    one.hear(TWO, loop=3)
    one.sync()
    assert one.acks() == [(5, 3, TWO.id)]


def test_no_message_below_the_highest_term_is_followed_or_acknowledged() -> None:
    one = Standby(ROOT, [ONE])
    one.hear(loop=9, term=4)
    assert one.acks() == []
    one.hear(TWO, loop=9, term=5)
    one.hear(loop=1, term=6, end=EntryId(6, 9))
    one.sync()
    assert one.acks() == [(6, 0, TWO.id)]  # The question of term 5 is not answered any more.
    one.hear(THREE, term=5)
    assert one.core.end == TWO.id


def test_an_entry_follows_the_one_it_names_and_replaces_later_ones() -> None:
    one = Standby()
    one.hear(ONE, TWO, THREE)
    one.sync()
    one.hear(INSTEAD, loop=2)
    one.sync()
    assert one.file == [ONE, INSTEAD]
    assert one.acks() == [(5, 2, INSTEAD.id)]


def test_a_sync_of_dropped_entries_acknowledges_nothing() -> None:
    one = Standby()
    one.hear(ONE, TWO)
    end = one.write()
    one.hear(INSTEAD, loop=2)
    assert end is not None
    one.core.synced(end)
    assert one.core.durable == ROOT
    one.sync()
    assert one.acks() == [(5, 2, INSTEAD.id)]


def test_a_late_entry_does_not_replace_an_acknowledged_one() -> None:
    for core in (Following, NoLate):
        one = Standby(core=core)
        one.hear(ONE)
        one.hear(INSTEAD, loop=2)
        one.sync()
        assert one.acks() == [(5, 2, INSTEAD.id)]
        one.hear(TWO, loop=1)
        one.sync()
        assert one.file == ([ONE, INSTEAD] if core is Following else [ONE, TWO])


def test_applied_entries_are_committed_and_synced_and_never_dropped() -> None:
    one = Standby()
    one.hear(ONE, TWO, THREE, committed=TWO.id)
    assert one.apply() == []
    one.sync()
    assert one.apply() == [ONE, TWO]
    assert (one.core.applied, one.core.end) == (TWO.id, THREE.id)
    one.hear(INSTEAD)
    assert one.core.end == THREE.id
    (follow,) = one.follows()
    assert follow.gap == 1
    assert split_ids(follow.body) == [TWO.id, THREE.id]


def test_entries_are_not_dropped_while_they_are_applied() -> None:
    one = Standby()
    one.hear(ONE, TWO, THREE, committed=TWO.id)
    one.sync()
    assert one.core.to_apply() == [ONE, TWO]
    assert one.core.to_apply() == []
    one.hear(INSTEAD)
    assert one.core.end == THREE.id
    one.core.applied_to(TWO.id)
    one.hear(committed=THREE.id)
    assert one.core.to_apply() == [THREE]


def test_many_entries_are_applied_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followings, "APPLY_BYTES_MAX", ONE.size * 2)
    one = Standby(ROOT, [ONE, TWO, THREE])
    one.hear(committed=THREE.id)
    assert one.apply() == [ONE, TWO]
    assert one.apply() == [THREE]


def test_unapplied_entries_have_a_limit_and_later_ones_are_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followings, "STAGED_BYTES_MAX", ONE.size * 2)
    one = Standby()
    one.hear(ONE, TWO, THREE)
    assert one.core.end == TWO.id
    one.sync()
    assert one.acks() == [(5, 0, TWO.id)]
    one.now += 1.0
    one.hear(end=THREE.id, committed=TWO.id)
    assert [follow.gap for follow in one.follows()] == [1]
    one.hear(end=TWO.id, committed=TWO.id)
    assert one.apply() == [ONE, TWO]
    one.hear(THREE)
    assert one.core.end == THREE.id


def test_an_entry_larger_than_the_limit_is_taken_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followings, "STAGED_BYTES_MAX", 1)
    one = Standby()
    one.hear(ONE)
    assert one.core.end == ONE.id


def test_a_gap_is_asked_about_at_once_and_then_once_a_beat() -> None:
    one = Standby()
    one.now += 0.5
    one.hear(TWO)
    assert [follow.gap for follow in one.follows()] == [1]
    one.hear(TWO)
    assert one.follows() == []
    assert one.core.deadline() == one.now + 1.0
    one.now += 1.0
    assert [follow.gap for follow in one.follows()] == [1]


def test_a_follower_reports_its_entries_with_each_beat() -> None:
    one = Standby(ONE.id, [TWO])
    one.now += 1.0
    (follow,) = one.follows()
    assert (follow.known, follow.gap, split_ids(follow.body)) == (5, 0, [ONE.id, TWO.id])
    assert one.follows() == []


def test_a_report_names_the_newest_of_many_staged_entries() -> None:
    entries = chain(*((5, number) for number in range(1, IDS_MAX + 10)))
    one = Standby(ROOT, entries)
    one.now += 1.0
    ids = split_ids(one.follows()[0].body)
    assert ids == [ROOT, *(each.id for each in entries[9:])]


def test_a_full_disk_keeps_synced_entries_and_is_reported() -> None:
    one = Standby()
    one.hear(ONE)
    one.sync()
    one.acks()
    one.hear(TWO, THREE, loop=2)
    assert one.core.to_write() is not None
    assert one.core.full_disk() == ONE.id
    (ack,) = [each for each in one.core.outgoing(one.now) if isinstance(each, Ack)]
    assert (ack.full, ack.durable) == (1, ONE.id)
    assert one.write() is None
    one.hear(TWO, THREE, loop=3)
    one.sync()
    assert one.acks() == [(5, 3, THREE.id)]


def test_a_promoted_standby_applies_all_entries() -> None:
    one = Standby(ONE.id, [TWO, THREE])
    assert one.core.promote() == [TWO, THREE]


def test_the_primary_hands_over_to_a_standby_with_all_entries() -> None:
    one = Standby()
    one.hear(ONE, hand=1, end=TWO.id)
    one.sync()
    assert not one.core.handed
    one.hear(TWO, hand=1)
    assert not one.core.handed
    one.sync()
    assert one.core.handed
    one.hear(THREE)
    one.sync()
    assert not one.core.handed
    one.hear(end=TWO.id, hand=1)  # The primary has less: it has taken something back.
    assert not one.core.handed


def copying() -> Standby:
    one = Standby(ONE.id, [TWO])
    one.now += 1.0
    assert one.core.begin_copy(6, one.follows()[0].token, EntryId(6, 9))
    return one


def test_a_copy_replaces_all_entries() -> None:
    one = copying()
    token = one.core._token
    one.hear(THREE, term=6, committed=TWO.id)
    assert (one.core.end, one.apply(), one.acks()) == (TWO.id, [], [])
    assert not one.core.copied(token + 1)
    assert one.core.copied(token)
    assert (one.core.applied, one.core.end, one.core.durable) == (EntryId(6, 9),) * 3
    assert one.core.promote() == []
    after = make_entry(EntryId(6, 10), EntryId(6, 9), [])
    one.hear(after, term=6, committed=after.id)
    one.sync()
    assert one.acks() == [(6, 1, after.id)]
    assert one.apply() == [after]
    assert not one.core.copied(token)


def test_a_copy_with_an_old_token_is_refused() -> None:
    one = Standby(ONE.id)
    one.now += 1.0
    token = one.follows()[0].token
    one.hear(TWO)
    assert not one.core.begin_copy(6, token, EntryId(6, 9))
    one.now += 1.0
    token = one.follows()[0].token
    assert not one.core.begin_copy(4, token, EntryId(6, 9))
    assert one.core.begin_copy(6, token, EntryId(6, 9))


def test_an_abandoned_copy_leaves_the_old_entries() -> None:
    one = copying()
    one.core.give_up_copy()
    assert not one.core.copied(one.core._token)
    one.hear(THREE, term=6)
    one.sync()
    assert one.core.durable == THREE.id
