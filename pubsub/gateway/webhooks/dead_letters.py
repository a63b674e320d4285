"""A webhook's rows in its mailbox: messages to deliver with their attempts, and dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import UNSET, UnsetType

from pubsub.client import Transaction
from pubsub.gateway.limits import DEAD_LETTERS_BYTES_MAX
from pubsub.gateway.mailbox import FIELDS, Mail, Mailbox
from pubsub.gateway.schemas import DeadLetters, Failure, Lost, Message

REASON_LENGTH_MAX: Final = 300
"""Characters of a failure's reason."""

_OF: Final = "WHERE topic = ? AND number = ?"


def waiting(mailbox: Mailbox, after: int) -> Iterator[tuple[int, bytes, int, float]]:
    """Yield the messages to deliver after a number: number, key, attempts and due time (seconds since 1970).

    A pattern's keys begin with the topic: the order is kept within each topic.
    """
    rows = mailbox.client.query(
        "SELECT number, key, attempts, due, source FROM gateway_mail WHERE topic = ? AND number > ? AND letter = 0"
        " ORDER BY number",
        (mailbox.topic, after),
    )
    for number, key, attempts, due, source in rows:
        yield number, b"%s %s" % (source.encode("ascii"), key) if source else key, attempts, due


def load(mailbox: Mailbox, number: int) -> Mail | None:
    """Return one message, None if it need not be delivered any more."""
    found = mailbox.after(number - 1, 1, number)
    return found[0] if found else None


def _change(mailbox: Mailbox, statement: str, bindings: tuple[Any, ...]) -> None:
    def write(transaction: Transaction) -> None:
        transaction.execute(statement, bindings)

    mailbox.client.write(write)


def delivered(mailbox: Mailbox, number: int) -> None:
    _change(mailbox, f"DELETE FROM gateway_mail {_OF}", (mailbox.topic, number))  # noqa: S608


def failed(mailbox: Mailbox, number: int, attempts: int, due: float, reason: str) -> None:
    """Store a failed attempt; the message is tried again."""
    statement = f"UPDATE gateway_mail SET attempts = ?, due = ?, note = ? {_OF}"  # noqa: S608
    _change(mailbox, statement, (attempts, due, reason[:REASON_LENGTH_MAX], mailbox.topic, number))


def dead_letter(mailbox: Mailbox, number: int, reason: str, at: float) -> None:
    """Turn a message into a dead letter.

    Args:
        at: time of the failure, in seconds since 1970. It is stored in the column of the due time, which is now unused.
    """
    statement = f"UPDATE gateway_mail SET attempts = attempts + 1, letter = 1, due = ?, note = ? {_OF}"  # noqa: S608
    _change(mailbox, statement, (at, reason[:REASON_LENGTH_MAX], mailbox.topic, number))


def dead_letter_all(mailbox: Mailbox, reason: str, at: float) -> None:
    """Turn all waiting messages into dead letters, because the receiver wants no more."""
    statement = "UPDATE gateway_mail SET letter = 1, due = ?, note = ? WHERE topic = ? AND letter = 0"
    _change(mailbox, statement, (at, reason[:REASON_LENGTH_MAX], mailbox.topic))


def redrive(transaction: Transaction, topic: str) -> int:
    """Queue dead letters for delivery again, after all others and with no attempts counted. Return their number.

    A row for lost messages stays a dead letter, since it cannot be delivered.
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


def purge(mailbox: Mailbox, before: float) -> int:
    """Delete the dead letters from before a time (seconds since 1970), and return their number."""

    def write(transaction: Transaction) -> int:
        letters = "FROM gateway_mail WHERE topic = ? AND letter = 1 AND due <= ?"
        found = list(transaction.execute(f"SELECT number {letters}", (mailbox.topic, before)))
        transaction.execute(f"DELETE {letters}", (mailbox.topic, before))
        return len(found)

    return mailbox.client.write(write)


def count(mailbox: Mailbox) -> int:
    rows = mailbox.client.query("SELECT count(*) FROM gateway_mail WHERE topic = ? AND letter = 1", (mailbox.topic,))
    return int(rows[0][0])


def dead_letters(mailbox: Mailbox, after: int, most: int, *, beginnings: bool = False) -> DeadLetters:
    """Return dead letters after a number, in order, and the number to continue after.

    Args:
        most: limit of letters; a limit on their bytes may end the response earlier.
        beginnings: cut large keys and bodies.
    """
    found: list[Mail] = []
    size, wanted = 0, f"SELECT {FIELDS} FROM gateway_mail WHERE topic = ? AND number = ?"  # noqa: S608
    for number, length in mailbox.client.query(
        "SELECT number, length(key) + length(headers) + length(coalesce(body, '')) FROM gateway_mail"
        " WHERE topic = ? AND number > ? AND letter = 1 ORDER BY number LIMIT ?",
        (mailbox.topic, after, most),
    ):
        size += length
        if found and size > DEAD_LETTERS_BYTES_MAX:
            break
        found += map(Mail._make, mailbox.client.query(wanted, (mailbox.topic, number)))
    more = bool(found) and any_after(mailbox, found[-1].number)
    return DeadLetters([as_json(mail, beginnings=beginnings) for mail in found], found[-1].number if more else None)


def as_json(mail: Mail, *, beginnings: bool) -> Message | Lost:
    """Return a dead letter: the message or its loss, with the number of attempts, the error and its time."""
    letter = {"number": mail.number, "attempts": mail.attempts, "error": mail.note, "failed_at": _failed_at(mail.due)}
    return mail.facts(beginnings=beginnings, **letter)


def any_after(mailbox: Mailbox, number: int) -> bool:
    statement = "SELECT 1 FROM gateway_mail WHERE topic = ? AND number > ? AND letter = 1 LIMIT 1"
    return bool(mailbox.client.query(statement, (mailbox.topic, number)))


def _failed_at(due: float) -> int | UnsetType:
    """Return UNSET for a letter of an earlier release, which did not store the time if there was no attempt."""
    return round(due * 1e6) if due else UNSET


def last_failure(mailbox: Mailbox) -> Failure | None:
    rows = mailbox.client.query(
        f"SELECT {FIELDS} FROM gateway_mail WHERE topic = ? AND letter = 1 ORDER BY number DESC LIMIT 1",  # noqa: S608
        (mailbox.topic,),
    )
    return failure(Mail(*rows[0]), rows[0][9]) if rows else None


def failure(mail: Mail, at: float) -> Failure:
    """Return a failed delivery; `at` in seconds since 1970."""
    return Failure(mail.id, mail.note, mail.attempts, _failed_at(at))
