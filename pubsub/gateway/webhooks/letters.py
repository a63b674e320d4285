"""A webhook's rows in its mailbox: what is to be delivered, how often it was tried, and what was given up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import UNSET, UnsetType

from pubsub.client import Transaction
from pubsub.gateway.limits import DEAD_LETTERS_BYTES_MAX
from pubsub.gateway.mailbox import FIELDS, Mail, Mailbox
from pubsub.gateway.schemas import DeadLetters, Failure, Lost, Message

REASON_LENGTH_MAX: Final = 300
"""Characters of why a delivery failed."""

_OF: Final = "WHERE topic = ? AND number = ?"


def waiting(mailbox: Mailbox, after: int) -> Iterator[tuple[int, bytes, int, float]]:
    """What is to be delivered behind a number: number, key, attempts and when it is due (seconds since 1970)."""
    rows = mailbox.client.read(
        "SELECT number, key, attempts, due FROM gateway_mail WHERE topic = ? AND number > ? AND letter = 0"
        " ORDER BY number",
        (mailbox.topic, after),
    )
    yield from rows


def load(mailbox: Mailbox, number: int) -> Mail | None:
    """One message; None where it is not to be delivered any more."""
    found = mailbox.after(number - 1, 1, number)
    return found[0] if found else None


def _change(mailbox: Mailbox, statement: str, bindings: tuple[Any, ...]) -> None:
    def write(transaction: Transaction) -> None:
        transaction.execute(statement, bindings)

    mailbox.client.write(write)


def delivered(mailbox: Mailbox, number: int) -> None:
    """The receiver has it."""
    _change(mailbox, f"DELETE FROM gateway_mail {_OF}", (mailbox.topic, number))  # noqa: S608


def failed(mailbox: Mailbox, number: int, attempts: int, due: float, reason: str) -> None:
    """It is to be tried again."""
    statement = f"UPDATE gateway_mail SET attempts = ?, due = ?, note = ? {_OF}"  # noqa: S608
    _change(mailbox, statement, (attempts, due, reason[:REASON_LENGTH_MAX], mailbox.topic, number))


def bury(mailbox: Mailbox, number: int, reason: str, at: float) -> None:
    """It is given up, and kept as a dead letter.

    Args:
        at: seconds since 1970. What was due by its back-off is of no use any more, and its column says when that was.
    """
    statement = f"UPDATE gateway_mail SET attempts = attempts + 1, letter = 1, due = ?, note = ? {_OF}"  # noqa: S608
    _change(mailbox, statement, (at, reason[:REASON_LENGTH_MAX], mailbox.topic, number))


def bury_all(mailbox: Mailbox, reason: str, at: float) -> None:
    """The receiver wants nothing more: what waits is given up."""
    statement = "UPDATE gateway_mail SET letter = 1, due = ?, note = ? WHERE topic = ? AND letter = 0"
    _change(mailbox, statement, (at, reason[:REASON_LENGTH_MAX], mailbox.topic))


def redrive(transaction: Transaction, topic: str) -> int:
    """Dead letters are to be delivered again, behind everything else, their attempts forgotten; how many they are.

    What a receiver can never be told, that messages are lost, stays a dead letter.
    """
    found = list(transaction.execute("SELECT last FROM gateway_place WHERE topic = ?", (topic,)))
    last = found[0][0] if found else 0
    numbers = [
        row[0]
        for row in transaction.execute(
            "SELECT number FROM gateway_mail WHERE topic = ? AND letter = 1 AND body IS NOT NULL ORDER BY number",
            (topic,),
        )
    ]
    transaction.executemany(
        "UPDATE gateway_mail SET number = ?, letter = 0, attempts = 0, due = 0 WHERE topic = ? AND number = ?",
        [(new, topic, number) for new, number in enumerate(numbers, last + 1)],
    )
    transaction.execute("UPDATE gateway_place SET last = ? WHERE topic = ?", (last + len(numbers), topic))
    return len(numbers)


def count(mailbox: Mailbox) -> int:
    """How many dead letters there are."""
    rows = mailbox.client.read("SELECT count(*) FROM gateway_mail WHERE topic = ? AND letter = 1", (mailbox.topic,))
    return int(rows[0][0])


def dead_letters(mailbox: Mailbox, after: int, most: int, *, beginnings: bool = False) -> DeadLetters:
    """Dead letters behind a number, in order, and behind which there are more.

    Args:
        most: letters; bytes of their bodies end the answer earlier.
        beginnings: of large keys and bodies only the beginnings.
    """
    found: list[Mail] = []
    size, wanted = 0, f"SELECT {FIELDS} FROM gateway_mail WHERE topic = ? AND number = ?"  # noqa: S608
    for number, length in mailbox.client.read(
        "SELECT number, length(key) + length(headers) + length(coalesce(body, '')) FROM gateway_mail"
        " WHERE topic = ? AND number > ? AND letter = 1 ORDER BY number LIMIT ?",
        (mailbox.topic, after, most),
    ):
        size += length
        if found and size > DEAD_LETTERS_BYTES_MAX:
            break
        found += map(Mail._make, mailbox.client.read(wanted, (mailbox.topic, number)))
    more = bool(found) and any_after(mailbox, found[-1].number)
    return DeadLetters([as_json(mail, beginnings=beginnings) for mail in found], found[-1].number if more else None)


def as_json(mail: Mail, *, beginnings: bool) -> Message | Lost:
    """A dead letter: the message, or that it is lost, and how often it was tried, and why and when it failed."""
    letter = {"number": mail.number, "attempts": mail.attempts, "error": mail.note, "failed_at": _failed_at(mail.due)}
    return mail.facts(beginnings=beginnings, **letter)


def any_after(mailbox: Mailbox, number: int) -> bool:
    """Whether there are dead letters behind a number."""
    statement = "SELECT 1 FROM gateway_mail WHERE topic = ? AND number > ? AND letter = 1 LIMIT 1"
    return bool(mailbox.client.read(statement, (mailbox.topic, number)))


def _failed_at(due: float) -> int | UnsetType:
    """Nothing of a letter that an earlier release gave up untried, which did not note it."""
    return round(due * 1e6) if due else UNSET


def last_failure(mailbox: Mailbox) -> Failure | None:
    """What there is to say of the newest dead letter."""
    rows = mailbox.client.read(
        f"SELECT {FIELDS} FROM gateway_mail WHERE topic = ? AND letter = 1 ORDER BY number DESC LIMIT 1",  # noqa: S608
        (mailbox.topic,),
    )
    return failure(Mail(*rows[0]), rows[0][9]) if rows else None


def failure(mail: Mail, at: float) -> Failure:
    """A delivery that failed, at that time (seconds since 1970)."""
    return Failure(mail.id, mail.note, mail.attempts, _failed_at(at))
