"""A damaged batch comes from the other member: the requests, the valid answers, the stored repairs, and the losses.

The rule is docs/explanation/failover.md, F8.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest

from pubsub.protocol import Get, Outcome, decode, encode
from pubsub.protocol.batch import encode_batch
from pubsub.protocol.messages import Read
from pubsub.protocol.standby import EntryId, Repair
from pubsub.server.offline.check import check
from pubsub.server.offline.found import Verdict
from pubsub.server.standby.disk.applied import applied_entry
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.member_disk import MemberDisk
from pubsub.server.standby.election.proposer import Identity
from pubsub.server.standby.repairs import BatchRepairs
from pubsub.server.standby.replication import repair_protocol as module
from pubsub.server.standby.replication.repair_protocol import AGAIN_BEATS, UNDER_WAY_MAX, Answers, Repairs, Settled
from pubsub.server.topic.changes import BatchQuarantined, BatchRepaired
from pubsub.server.topic.delivery import Batch
from tests.server.stage import Stage, bodies
from tests.standby.twins import LOCAL, rows

A, B, STORE = "a" * 16, "b" * 16, "0" * 16
ME, OTHER = Identity("s1", STORE, A, "tcp://127.0.0.1:1"), Identity("s1", STORE, B, "tcp://127.0.0.1:2")
END = EntryId(7, 3)
BODY = bytes(encode_batch([b"one", b"two"]))
CHECKSUM = crc32(BODY)


def batch(log: int = 1, offset: int = 5, **changed: Any) -> Repair:
    """The other member's answer."""
    facts = {"count": 2, "publisher": 1, "counter": 9, "stamp": 8, "checksum": CHECKSUM, "total": 4, "body": BODY}
    return Repair(
        "s1", STORE, changed.pop("member", B), "batch", changed.pop("term", 7), log, offset, **facts | changed
    )


@pytest.fixture
def repairs() -> Repairs:
    made = Repairs(ME, 1.0)
    made.ask_of(B)
    return made


# Requests of a primary


def test_a_member_alone_asks_nobody_and_damaged_batches_are_lost() -> None:
    alone = Repairs(ME, 1.0)
    assert not alone.ask_repair(1, 5)
    assert alone.outgoing(7, END, 0.0) == []


def test_a_batch_is_requested_until_an_answer_comes_and_few_are_requested_at_a_time(repairs: Repairs) -> None:
    for offset in range(1, 10):
        assert repairs.ask_repair(1, offset)
    first = repairs.outgoing(7, END, 0.0)
    assert [(one.step, one.term, one.log, one.offset, one.end) for one in first] == [
        ("wanted", 7, 1, offset, END) for offset in range(1, UNDER_WAY_MAX + 1)
    ]
    assert repairs.outgoing(7, END, AGAIN_BEATS - 0.1) == []
    assert repairs.outgoing(7, END, float(AGAIN_BEATS)) == first
    assert repairs.receive(batch(offset=1), 7, 2) is not None
    assert [one.offset for one in repairs.outgoing(7, END, AGAIN_BEATS + 0.1)] == [UNDER_WAY_MAX + 1]


def test_an_answer_is_used_once(repairs: Repairs) -> None:
    repairs.ask_repair(1, 5)
    assert repairs.receive(batch(), 7, 2) == Settled(1, BatchRepaired(1, 5, 2, 1, 9, 8, CHECKSUM, 4, BODY))
    assert repairs.receive(batch(), 7, 2) is None
    assert repairs.wanted == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"term": 6},
        {"member": "c" * 16},
        {"offset": 6},
        {"body": BODY[:-1]},
        {"checksum": CHECKSUM ^ 1},
        {"count": 3},
        {"publisher": 0},
        {"publisher": 2},
    ],
)
def test_an_answer_to_another_request_is_ignored(repairs: Repairs, changed: dict[str, Any]) -> None:
    repairs.ask_repair(1, 5)
    assert repairs.receive(batch(**changed), 7, 2) is None
    assert repairs.wanted == 1


def test_a_batch_that_the_other_member_lacks_is_lost_until_another_member_replaces_it(repairs: Repairs) -> None:
    repairs.ask_repair(1, 5)
    assert repairs.receive(Repair("s1", STORE, B, "none", 7, 1, 5), 7, 2) == Settled(1, None)
    assert not repairs.ask_repair(1, 5)
    assert repairs.ask_repair(1, 6)
    repairs.ask_of("c" * 16)
    assert repairs.ask_repair(1, 5)


def test_a_removed_member_is_not_asked(repairs: Repairs) -> None:
    repairs.ask_repair(1, 5)
    repairs.ask_of("")
    assert repairs.outgoing(7, END, 0.0) == []
    assert not repairs.ask_repair(1, 5)


def test_requests_beyond_the_limits_wait_and_the_oldest_is_asked_again(
    repairs: Repairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WANTED_MAX", 2)
    monkeypatch.setattr(module, "LACKING_MAX", 2)
    assert [repairs.ask_repair(1, offset) for offset in (1, 2, 3)] == [True, True, True]
    assert repairs.wanted == 2
    for offset in (1, 2, 3):
        repairs.ask_repair(1, offset)
        repairs.receive(Repair("s1", STORE, B, "none", 7, 1, offset), 7, 2)
    assert [repairs.ask_repair(1, offset) for offset in (1, 2, 3)] == [True, False, False]


# Answers of a standby


def test_a_standby_answers_after_it_applied_the_primarys_entries_and_under_no_old_term() -> None:
    held = {(1, 5): Batch(5, 2, 1, 9, 8, CHECKSUM, 4, BODY)}
    answers = Answers(OTHER, lambda log, offset: held.get((log, offset)))
    wanted = [Repair("s1", STORE, A, "wanted", 7, 1, offset, end=END) for offset in (5, 6)]
    for one in wanted:
        answers.asked(one)
    answers.asked(batch())
    assert answers.outgoing(EntryId(7, 2), 7) == []
    assert answers.outgoing(EntryId(6, 900), 7) == []  # Of another history, maybe.
    assert answers.outgoing(END, 7) == [batch(), Repair("s1", STORE, B, "none", 7, 1, 6)]
    assert answers.outgoing(END, 7) == []
    answers.asked(wanted[0])
    assert answers.outgoing(END, 8) == []
    assert answers.outgoing(EntryId(7, 9), 7) == []


def test_a_standby_remembers_a_few_questions() -> None:
    answers = Answers(OTHER, lambda log, offset: None)
    for offset in range(1, UNDER_WAY_MAX + 3):
        answers.asked(Repair("s1", STORE, A, "wanted", 7, 1, offset, end=END))
    assert [one.offset for one in answers.outgoing(END, 7)] == list(range(3, UNDER_WAY_MAX + 3))


# On two stores


class Two:
    """A server with a client's puts, and a member with a copy of its store; the link between them is a call."""

    def __init__(self, directory: Path) -> None:
        self.primary = Stage(directory / A, retention_hold_seconds=13.0)
        self.log = self.primary.subscribe("bob", "t", 5).log
        for counter, body in ((1, b"1"), (2, b"2" * 5000), (3, b"3")):
            self.primary.put("t", counter, [body])
        self.number = self.primary.core.state.topics["t"].open.number
        self.primary.store.db.execute("insert or replace into meta values ('term', 7), ('number', 3)")
        self.primary.close()
        (directory / B).mkdir()
        (directory / B / "server.db").write_bytes((directory / A / "server.db").read_bytes())
        self.primary.open()
        local = LocalFile(directory / B)
        local.make(B)
        self.disk = MemberDisk(directory / B, local)
        self.up = True
        view = SimpleNamespace(members=(A, B))
        leading = SimpleNamespace(term=7, end=applied_entry(self.primary.store))
        following = SimpleNamespace(applied=applied_entry(self.disk.store), floor=7)
        proposer = SimpleNamespace(view=view)
        self.leads = SimpleNamespace(leading=leading, following=None, proposer=proposer, view=view)
        self.follows = SimpleNamespace(leading=None, following=following, proposer=proposer, view=view)
        self.theirs = BatchRepairs(OTHER, self.disk, 1.0)
        self.serve()

    def serve(self) -> None:
        self.ours = BatchRepairs(ME, SimpleNamespace(directory=Path(A), store=self.primary.store), 1.0)  # type: ignore[arg-type]
        self.ours.serve(self.primary.core.state)
        self.exchange()

    def damage(self, store: Any, offset: int = 2, assignment: str = "body = zeroblob(length(body))") -> None:
        store.db.execute(f"update batch set {assignment} where key = ?", (self.number << 40 | offset,))

    def restart(self) -> None:
        self.primary.restart()
        self.serve()

    def exchange(self) -> None:
        """The messages of the members to each other, as bytes; the server's loop turns."""
        now = self.primary.now
        for said in self.ours.outgoing(self.leads, now):
            if self.up:
                self.theirs.receive(decode(*encode(said)), self.follows)
        for said in self.theirs.outgoing(self.follows, now):
            self.ours.receive(decode(*encode(said)), self.leads)
        self.primary.loop()

    def get(self, last: int) -> Any:
        """The answer to bob; the members exchange messages while he waits."""
        position = (self.log, last)
        callback = self.primary.say(Get("bob", "t", position, 5, 5, records_max=1000, wait_ms=1000))
        self.primary.loop()
        for _ in range(3):
            self.exchange()
        if (answer := self.primary.answer(callback)) is None:
            self.primary.now += 2.0
            self.primary.loop()
            answer = self.primary.answer(callback)
        return answer

    def close(self) -> None:
        self.primary.close()
        self.disk.close()


@pytest.fixture
def two(tmp_path: Path) -> Any:
    made = Two(tmp_path)
    yield made
    made.close()


WRONG = ["body = zeroblob(length(body))", "body = x''", "checksum = 1", "publisher = 99", "count = 77"]


@pytest.mark.parametrize("assignment", WRONG)
def test_a_damaged_batch_is_delivered_from_the_other_members_copy(two: Two, assignment: str) -> None:
    two.damage(two.primary.store, assignment=assignment)
    two.restart()
    assert bodies(two.get(0)) == [b"1"]
    assert bodies(two.get(1)) == [b"2" * 5000, b"3"]
    counters = two.primary.core.state.counters
    assert (counters["batches_damaged"], counters["batches_repaired"]) == (1, 1)


@pytest.mark.parametrize("set_aside", [True, False])
def test_a_repair_is_stored_and_survives_a_restart(two: Two, set_aside: bool) -> None:
    two.damage(two.primary.store)
    two.restart()
    two.get(0)
    two.get(1)
    if not set_aside:  # As where a page of that table is damaged too.
        two.primary.store.db.execute("delete from quarantine")
    two.up = False
    two.restart()
    assert bodies(two.get(1)) == [b"2" * 5000, b"3"]
    assert two.primary.core.state.counters["batches_damaged"] == 0


def test_a_repaired_batch_is_no_loss_in_the_check_of_a_stopped_store(two: Two) -> None:
    two.damage(two.primary.store)
    two.primary.close()
    before = check(two.primary.settings.directory)
    assert (before.verdict, before.topics[0].lost) == (Verdict.DAMAGED, 1)
    two.primary.open()
    two.serve()
    for last in (0, 1):
        two.get(last)
    two.primary.close()
    after = check(two.primary.settings.directory)
    assert (after.verdict, after.topics[0].lost, after.topics[0].records) == (Verdict.INTACT, 0, 3)
    assert any("1 of them" in note for note in after.notes)
    two.primary.open()


def test_a_loss_is_reported_only_after_the_other_member_was_removed(two: Two) -> None:
    two.damage(two.primary.store)
    two.up = False
    two.restart()
    two.get(0)
    answer = two.get(1)
    assert (answer.outcome, answer.reason) == (Outcome.UNAVAILABLE, "a_damaged_batch_is_asked_of_the_other_member")
    two.leads.proposer.view = SimpleNamespace(members=(A,))
    two.exchange()
    assert two.get(1).outcome is Outcome.LOST


def test_a_batch_damaged_at_both_members_is_reported_as_lost(two: Two) -> None:
    two.damage(two.primary.store)
    two.damage(two.disk.store)
    two.restart()
    two.get(0)
    answer = two.get(1)
    assert (answer.outcome, answer.first, answer.message) == (Outcome.LOST, (two.log, 2), (two.log, 2))
    assert bodies(two.get(2)) == [b"3"]
    assert two.primary.core.state.counters["batches_repaired"] == 0


def test_a_read_of_a_damaged_range_waits_too(two: Two) -> None:
    two.damage(two.primary.store)
    two.restart()

    def read() -> Any:
        callback = two.primary.say(Read("eve", "t", (two.log, 1), (two.log, 3), records_max=10))
        two.primary.loop()
        return two.primary.answered(callback)

    assert read().outcome is Outcome.UNAVAILABLE
    two.exchange()
    two.exchange()
    assert bodies(read()) == [b"2" * 5000, b"3"]


def test_a_batch_removed_by_a_limit_is_not_requested(two: Two) -> None:
    two.damage(two.primary.store, assignment="body = null")
    two.restart()
    two.get(0)
    assert two.get(1).outcome is Outcome.LOST
    assert two.ours.repairs.wanted == 0


def test_a_repair_on_a_full_disk_is_requested_again(two: Two) -> None:
    two.damage(two.primary.store)
    two.restart()
    two.get(0)
    two.primary.fail_commit = True
    two.get(1)
    two.primary.fail_commit = two.primary.core.state.full = False
    two.primary.now += 10.0
    assert bodies(two.get(1)) == [b"2" * 5000, b"3"]


@pytest.mark.parametrize("found_before", [True, False])
def test_an_undone_repair_leaves_the_memory(two: Two, found_before: bool) -> None:
    two.damage(two.primary.store)
    store, log = two.primary.store, two.number
    store.reader.drop(log << 40 | 2)
    if found_before:
        with store.guarded():
            store.apply([BatchQuarantined(log, 2)])
    before = [one.body for one in store.reader.batches(log, 2, 3)]
    store.begin()
    store.apply([BatchRepaired(log, 2, 1, 1, 2, 8, CHECKSUM, 2, BODY)])
    assert [one.body for one in store.reader.batches(log, 2, 3)] == [BODY]
    store.roll_back()
    assert [one.body for one in store.reader.batches(log, 2, 3)] == before
    assert store.reader.damaged == ({log << 40 | 2} if found_before else set())


def test_a_repair_is_deleted_with_its_batch(two: Two) -> None:
    two.damage(two.primary.store)
    two.restart()
    for last in (0, 1):
        two.get(last)
    db = two.primary.store.db
    assert db.execute("select count(*) from repaired").fetchall() == [(1,)]
    two.get(3)
    two.primary.sleep(60.0)
    for _ in range(5):
        two.primary.loop()
    assert db.execute("select count(*) from repaired").fetchall() == [(0,)]


def test_a_repair_without_kept_damaged_bytes_is_deleted_with_its_batch(two: Two) -> None:
    two.damage(two.primary.store)
    two.restart()
    for last in (0, 1):
        two.get(last)
    two.primary.store.db.execute("delete from quarantine")
    two.restart()
    two.get(3)
    two.primary.sleep(60.0)
    for _ in range(5):
        two.primary.loop()
    assert two.primary.store.db.execute("select count(*) from repaired").fetchall() == [(0,)]


def test_a_store_without_a_repair_has_no_table_of_repairs(two: Two) -> None:
    two.get(0)
    tables = {row[0] for row in rows(two.primary.store, LOCAL)}
    assert "repaired" not in tables
