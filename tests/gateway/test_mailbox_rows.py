"""What a mailbox keeps of its batch, of confirmations and of dead letters, in its tables alone."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from pubsub.gateway.mailbox import TABLES, Mailbox, Place, _add, _confirm


class File:
    """The file of a client, by the calls that a mailbox makes of it."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:")
        for table in TABLES:
            self.db.execute(table)

    def read(self, sql: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        return self.db.execute(sql, arguments).fetchall()


@pytest.fixture
def file() -> File:
    return File()


def add(file: File, *bodies: bytes, opened: bool = False) -> None:
    rows = [(f"a-{number}", "a", number, 0, b"", body, "", b"") for number, body in enumerate(bodies)]
    _add(file.db, "t", rows, opened=opened)  # type: ignore[arg-type]


def confirm(file: File, number: int) -> None:
    _confirm(file.db, "t", number)  # type: ignore[arg-type]


def mailbox(file: File) -> Mailbox:
    return Mailbox(file, "t")  # type: ignore[arg-type]


def test_a_batch_that_is_handed_out_is_noted_and_later_messages_are_not_of_it(file: File) -> None:
    add(file, b"1", b"2", opened=True)
    add(file, b"3")
    assert mailbox(file).place() == Place(last=3, confirmed=0, opened=2)


def test_what_did_not_come_yet_cannot_be_confirmed(file: File) -> None:
    add(file, b"1", b"2")
    confirm(file, 9)
    add(file, b"3")
    assert mailbox(file).place() == Place(last=3, confirmed=2)
    assert [mail.body for mail in mailbox(file).after(2, 10)] == [b"3"]


def test_confirming_leaves_dead_letters_where_they_are(file: File) -> None:
    add(file, b"1", b"2")
    file.db.execute("UPDATE gateway_mail SET letter = 1 WHERE number = 1")
    confirm(file, 2)
    assert file.read("SELECT number FROM gateway_mail") == [(1,)]
