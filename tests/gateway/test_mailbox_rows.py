"""The rows of a mailbox for its batch, its confirmations and its dead letters, in its tables alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pubsub.gateway.limits import DEAD_LETTERS_BYTES_MAX, PREVIEW_BODY_BYTES
from pubsub.gateway.mailbox import TABLES, Mailbox, Place, _add, _confirm
from pubsub.gateway.schemas import Failure
from pubsub.gateway.webhooks import dead_letters as rows


class File:
    """The file of a client, by the calls that a mailbox makes of it."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        for table in TABLES:
            self.db.execute(table)

    def write(self, function: Callable[[Any], Any]) -> Any:
        return function(self.db)

    def query(self, sql: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
        return self.db.execute(sql, arguments).fetchall()


@pytest.fixture
def file() -> File:
    return File()


def add(file: File, *bodies: bytes, opened: bool = False, key: bytes = b"") -> None:
    rows = [(f"a-{number}", "a", number, 0, key, body, "", b"", False, 0, "") for number, body in enumerate(bodies)]
    _add(file.db, "t", rows, opened=opened)  # type: ignore[arg-type]


def confirm(file: File, number: int) -> None:
    _confirm(file.db, "t", number)  # type: ignore[arg-type]


def dead_letters(file: File, after: int, most: int, *, beginnings: bool = False) -> list[dict[str, Any]]:
    found = rows.dead_letters(mailbox(file), after, most, beginnings=beginnings)
    return [msgspec.to_builtins(one) for one in found.dead_letters]


def mailbox(file: File) -> Mailbox:
    return Mailbox(file, "t")  # type: ignore[arg-type]


def test_an_opened_batch_is_recorded_and_excludes_later_messages(file: File) -> None:
    add(file, b"1", b"2", opened=True)
    add(file, b"3")
    assert mailbox(file).place() == Place(last=3, confirmed=0, opened=2)


def test_a_message_that_has_not_come_cannot_be_confirmed(file: File) -> None:
    add(file, b"1", b"2")
    confirm(file, 9)
    add(file, b"3")
    assert mailbox(file).place() == Place(last=3, confirmed=2)
    assert [mail.body for mail in mailbox(file).after(2, 10)] == [b"3"]


def test_confirming_leaves_dead_letters(file: File) -> None:
    add(file, b"1", b"2")
    file.db.execute("UPDATE gateway_mail SET letter = 1 WHERE number = 1")
    confirm(file, 2)
    assert file.query("SELECT number FROM gateway_mail") == [(1,)]


def test_a_dead_letter_has_its_error_its_time_and_its_attempts(file: File) -> None:
    add(file, b"1", b"2", b"3")
    rows.failed(mailbox(file), 1, 1, 99.0, "status 500")
    rows.dead_letter(mailbox(file), 1, "status 502", 12.5)
    rows.dead_letter_all(mailbox(file), "the receiver answered 410", 13.0)
    file.db.execute("UPDATE gateway_mail SET due = 0 WHERE number = 3")  # As an earlier release left it.
    names = ("number", "attempts", "error", "failed_at")
    assert [tuple(one.get(name) for name in names) for one in dead_letters(file, 0, 9)] == [
        (1, 2, "status 502", 12_500_000),
        (2, 0, "the receiver answered 410", 13_000_000),
        (3, 0, "the receiver answered 410", None),
    ]
    found = rows.last_failure(mailbox(file))
    assert found == Failure("a-2", "the receiver answered 410", 0)


def test_letters_before_a_time_are_purged_and_no_waiting_message(file: File) -> None:
    add(file, b"1", b"2", b"3")
    rows.dead_letter(mailbox(file), 1, "status 502", 12.5)
    rows.dead_letter(mailbox(file), 2, "status 502", 13.0)
    assert (rows.purge(mailbox(file), 12.4), rows.purge(mailbox(file), 12.5)) == (0, 1)
    assert file.query("SELECT number FROM gateway_mail ORDER BY number") == [(2,), (3,)]


def test_an_answer_with_large_dead_letters_is_bounded_and_has_at_least_one(file: File) -> None:
    large = b"x" * (DEAD_LETTERS_BYTES_MAX // 2 + 1)
    add(file, large, large, b"3")
    rows.dead_letter_all(mailbox(file), "x", 1.0)
    assert [one["number"] for one in dead_letters(file, 0, 9)] == [1]
    assert [one["number"] for one in dead_letters(file, 1, 9)] == [2, 3]
    (one,) = dead_letters(file, 0, 1, beginnings=True)
    assert (one["bytes"], one["cut"], one["body"]) == (len(large), ["body"], "x" * PREVIEW_BODY_BYTES)
    assert (rows.any_after(mailbox(file), 2), rows.any_after(mailbox(file), 3)) == (True, False)
