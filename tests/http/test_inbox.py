"""The inbox on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import apsw
import pytest

from pubsub.http.core.answers import Answer
from pubsub.http.core.incoming import Incoming, Standing
from pubsub.http.core.keys import make_id
from pubsub.http.core.outgoing import Kind
from pubsub.http.storage import inbox
from pubsub.http.storage.journal import Journal, OwnFile

REQUEST = Incoming(
    "alice", "k1", Kind.JOB, "POST", "/x", "a=1", {"a": "b"}, b"body", b"p" * 32, 1.0, "http://s/r",
    Standing.RECEIVED, 3, 5.0, 4.0, Answer(200, {"c": "d"}, b"\x00\xff"), "why",
)  # fmt: skip
SESSION = "0" * 16


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(OwnFile(tmp_path, ""))
    yield made
    made.close()


def ours(number: int) -> str:
    return make_id(SESSION, number, "f" * 32)


def test_a_stored_request_keeps_each_of_its_fields(journal: Journal) -> None:
    with journal.transaction() as transaction:
        inbox.add(transaction, REQUEST)
        assert inbox.find(transaction, "alice", "k1") == REQUEST
        assert inbox.find(transaction, "bob", "k1") is None
        changed = replace(REQUEST, standing=Standing.DONE, answer=None, body=b"")
        inbox.save(transaction, changed)
        assert inbox.find(transaction, "alice", "k1") == changed
        with pytest.raises(apsw.ConstraintError):
            inbox.add(transaction, REQUEST)
        inbox.add(transaction, replace(REQUEST, owner="bob"))
    distinct = [getattr(REQUEST, one.name) for one in fields(REQUEST)]
    assert len({repr(value) for value in distinct}) == len(distinct), "no two fields of the example are alike"


def test_waiting_requests_are_counted_and_listed_in_order(journal: Journal) -> None:
    with journal.transaction() as transaction:
        for key, standing in (
            ("b", Standing.RECEIVED),
            ("a", Standing.RECEIVED),
            ("c", Standing.DONE),
            ("d", Standing.FAILED),
        ):
            inbox.add(transaction, replace(REQUEST, key=key, standing=standing))
        assert [key for _, key, _ in inbox.waiting(transaction)] == ["b", "a"]
        assert inbox.measure(transaction) == (2, 8)
        assert inbox.tombstones(transaction) == 2
        assert [one.key for one in inbox.every(transaction, open_only=True)] == ["b", "a", "d"]


def test_requests_that_the_sender_has_finished_are_removed_and_remembered(journal: Journal) -> None:
    with journal.transaction() as transaction:
        for number, standing in (
            (1, Standing.DONE),
            (2, Standing.RECEIVED),
            (3, Standing.CONFIRMED),
            (4, Standing.DONE),
        ):
            inbox.add(transaction, replace(REQUEST, key=ours(number), standing=standing))
        assert inbox.finish(transaction, "alice", ours(5), 3, 7.0) == 2
        assert [number for number in range(1, 6) if inbox.find(transaction, "alice", ours(number))] == [2, 4]
        assert [number for number in range(1, 6) if inbox.finished(transaction, "alice", ours(number))] == [1, 2, 3]
        assert not inbox.finished(transaction, "bob", ours(1))
        assert not inbox.finished(transaction, "alice", "k1")
        assert inbox.finish(transaction, "alice", ours(5), 1, 8.0) == 0
        assert inbox.finished(transaction, "alice", ours(3)), "an older word takes nothing back"


def test_a_stored_request_does_not_count_as_finished_by_its_sender(journal: Journal) -> None:
    with journal.transaction() as transaction:
        inbox.finish(transaction, "alice", ours(5), 99, 7.0)
        assert not inbox.finished(transaction, "alice", ours(5))
        assert inbox.finished(transaction, "alice", ours(4))


def test_old_tombstones_and_sessions_are_removed_and_waiting_requests_stay(journal: Journal) -> None:
    with journal.transaction() as transaction:
        inbox.add(transaction, replace(REQUEST, key="old", standing=Standing.DONE, changed=1.0))
        inbox.add(transaction, replace(REQUEST, key="new", standing=Standing.DONE, changed=9.0))
        inbox.add(transaction, replace(REQUEST, key="waits", changed=1.0))
        inbox.finish(transaction, "alice", ours(5), 4, 1.0)
        assert inbox.next_tombstone(transaction) == 1.0
        assert inbox.sweep(transaction, 5.0) == 1
        assert [one.key for one in inbox.every(transaction, open_only=False)] == ["new", "waits"]
        assert not inbox.finished(transaction, "alice", ours(1))
        assert inbox.latest(transaction) == 9.0


def test_the_most_silent_sessions_beyond_the_limit_are_removed(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "FORGOTTEN_MAX", 2)
    keys = [make_id(f"{number:016x}", 5, "f" * 32) for number in range(4)]
    with journal.transaction() as transaction:
        for number, key in enumerate(keys):
            inbox.finish(transaction, "alice", key, 4, 100.0 - number)
        inbox.sweep(transaction, 0.0)
        known = [inbox.finished(transaction, "alice", key.replace("-5-", "-4-")) for key in keys]
    assert known == [True, True, False, False]
