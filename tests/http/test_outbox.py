"""The outbox on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import apsw
import pytest

from pubsub.http.core.answers import Answer
from pubsub.http.core.outgoing import Kind, Outgoing, State
from pubsub.http.storage import outbox
from pubsub.http.storage.journal import Journal, OwnFile

REQUEST = Outgoing(
    "k1", Kind.JOB, "POST", "http://h/x", {"a": "b"}, b"body", b"p" * 32, 1.0, 9.0, 2.0, State.OPEN, 3,
    Answer(200, {"c": "d"}, b"\x00\xff"), "why", "http://h/c", "http://l/", 4.0,
)  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(OwnFile(tmp_path, ""))
    yield made
    made.close()


def test_a_stored_request_keeps_each_of_its_fields(journal: Journal) -> None:
    with journal.transaction() as transaction:
        outbox.add(transaction, REQUEST)
        assert outbox.find(transaction, "k1") == REQUEST
        assert outbox.find(transaction, "k2") is None
        changed = replace(REQUEST, state=State.DONE, answer=None, body=b"", confirm="")
        outbox.save(transaction, changed)
        assert outbox.find(transaction, "k1") == changed
        with pytest.raises(apsw.ConstraintError):
            outbox.add(transaction, REQUEST)
    distinct = [getattr(REQUEST, one.name) for one in fields(REQUEST)]
    assert len({repr(value) for value in distinct}) == len(distinct), "no two fields of the example are alike"


def test_a_forgotten_request_is_not_saved_again(journal: Journal) -> None:
    with journal.transaction() as transaction:
        outbox.add(transaction, REQUEST)
        assert outbox.remove(transaction, "k1")
        outbox.save(transaction, REQUEST)
        assert outbox.find(transaction, "k1") is None
        assert not outbox.remove(transaction, "k1")


def test_the_open_and_the_unconfirmed_requests_are_to_be_done(journal: Journal) -> None:
    with journal.transaction() as transaction:
        for name, state, confirm in (
            ("open", State.OPEN, ""), ("accepted", State.ACCEPTED, ""), ("done", State.DONE, ""),
            ("confirm", State.DONE, "http://h/c"), ("refused", State.REFUSED, ""), ("expired", State.EXPIRED, ""),
        ):  # fmt: skip
            outbox.add(transaction, replace(REQUEST, id=name, state=state, confirm=confirm))
        assert {row[0] for row in outbox.active(transaction)} == {"open", "accepted", "confirm"}
        assert outbox.measure(transaction) == (2, 8)
        assert {one.id for one in outbox.every(transaction, open_only=True)} == {"open", "accepted"}
        assert {one.body for one in outbox.every(transaction, open_only=False)} == {b""}


def test_old_tombstones_are_removed_and_open_requests_stay(journal: Journal) -> None:
    with journal.transaction() as transaction:
        for number in range(1500):
            outbox.add(transaction, replace(REQUEST, id=f"d{number}", state=State.DONE, changed=float(number)))
        outbox.add(transaction, replace(REQUEST, id="open", changed=0.0))
        assert outbox.next_tombstone(transaction) == 0.0
        assert outbox.sweep(transaction, 1200.0) == 1000
        assert outbox.sweep(transaction, 1200.0) == 200
        assert outbox.sweep(transaction, 1200.0) == 0
        assert outbox.next_tombstone(transaction) == 1200.0
        assert outbox.latest(transaction) == 1499.0
        assert outbox.find(transaction, "open") is not None
