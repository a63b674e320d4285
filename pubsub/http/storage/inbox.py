"""The inbox on the disk: requests that are not handled, and the tombstones of those that are, with their responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pubsub.client.storage.transaction import Transaction
from pubsub.http.core.incoming import Incoming, Standing
from pubsub.http.core.keys import session_of
from pubsub.http.core.limits import FORGOTTEN_MAX, SWEEP_ROWS_MAX
from pubsub.http.core.outgoing import Kind
from pubsub.http.storage.columns import answer_columns, headers_text, read_answer, read_headers, reading

_COLUMNS: Final = (
    "owner, key, kind, method, path, query, headers, body, print, received, response_url, standing, attempts, due,"
    " changed, status, answer_headers, answer_body, problem, session, session_number"
)


def add(transaction: Transaction, request: Incoming) -> None:
    """Store a request that is not there."""
    marks = ", ".join("?" * 21)
    transaction.execute(f"insert into pubsub_http_inbox ({_COLUMNS}) values ({marks})", _values(request))  # noqa: S608


def save(transaction: Transaction, request: Incoming) -> None:
    """Store a request in place of what there is of it."""
    names = ", ".join(f"{name.strip()} = ?" for name in _COLUMNS.split(","))
    where = "where owner = ? and key = ?"
    transaction.execute(
        f"update pubsub_http_inbox set {names} {where}",  # noqa: S608
        (*_values(request), request.owner, request.key),
    )


@reading
def find(transaction: Transaction, owner: str, key: str) -> Incoming | None:
    """The request of that owner and key."""
    query = f"select {_COLUMNS} from pubsub_http_inbox where owner = ? and key = ?"  # noqa: S608
    for row in transaction.execute(query, (owner, key)):
        return _read(row)
    return None


@reading
def waiting(transaction: Transaction) -> list[tuple[str, str, float]]:
    """Owner, key and time of what is to be handled, in the order in which it arrived."""
    query = "select owner, key, due from pubsub_http_inbox where standing = 'received' order by number"
    return [(str(owner), str(key), float(due)) for owner, key, due in transaction.execute(query)]


@reading
def every(transaction: Transaction, *, open_only: bool) -> list[Incoming]:
    """All requests without their bodies, in the order in which they arrived; `open_only`: what is not done."""
    columns = _COLUMNS.replace(" body,", " x'' as body,")
    where = "where standing in ('received', 'failed')" if open_only else ""
    return [
        _read(row)
        for row in transaction.execute(f"select {columns} from pubsub_http_inbox {where} order by number")  # noqa: S608
    ]


def measure(transaction: Transaction) -> tuple[int, int]:
    """How many requests are not handled, and the bytes of their bodies."""
    query = "select count(*), coalesce(sum(length(body)), 0) from pubsub_http_inbox where standing = 'received'"
    count, size = transaction.execute(query).get
    return int(count), int(size)


def tombstones(transaction: Transaction) -> int:
    """How many requests are known that are handled."""
    return int(transaction.execute("select count(*) from pubsub_http_inbox where standing != 'received'").get)


def remove(transaction: Transaction, owner: str, key: str) -> bool:
    """Take a request out, whatever its standing; whether there was one."""
    query = "delete from pubsub_http_inbox where owner = ? and key = ? returning number"
    return bool(list(transaction.execute(query, (owner, key))))


def finished(transaction: Transaction, owner: str, key: str) -> bool:
    """Whether the sender of a key has said that it will not be sent again."""
    if (ours := session_of(key)) is None:
        return False
    query = "select number from pubsub_http_finished where owner = ? and session = ?"
    found = transaction.execute(query, (owner, ours[0])).get
    return found is not None and ours[1] <= int(found)


def finish(transaction: Transaction, owner: str, key: str, number: int, now: float) -> int:
    """Take note of what the sender of a key has finished; how many tombstones that took out.

    What is not handled yet stays: its sender has the acknowledgement, and the handler is still to be called.
    """
    if (ours := session_of(key)) is None or not number:
        return 0
    number = min(number, ours[1] - 1)  # A request that is here is not finished, whatever its sender says.
    transaction.execute(
        "insert into pubsub_http_finished values (?, ?, ?, ?) on conflict (owner, session)"
        " do update set number = max(number, excluded.number), heard = excluded.heard",
        (owner, ours[0], number, now),
    )
    removed = transaction.execute(
        "delete from pubsub_http_inbox where number in (select number from pubsub_http_inbox where owner = ?"
        " and session = ? and session_number <= ? and standing != 'received' limit ?) returning number",
        (owner, ours[0], number, SWEEP_ROWS_MAX),
    )
    return len(list(removed))


def sweep(transaction: Transaction, before: float) -> int:
    """Take out tombstones and sessions that are older; how many tombstones, at most SWEEP_ROWS_MAX."""
    transaction.execute("delete from pubsub_http_finished where heard < ?", (before,))
    transaction.execute(
        "delete from pubsub_http_finished where (owner, session) in (select owner, session from pubsub_http_finished"
        " order by heard desc limit -1 offset ?)",
        (FORGOTTEN_MAX,),
    )
    removed = transaction.execute(
        "delete from pubsub_http_inbox where number in (select number from pubsub_http_inbox"
        " where standing in ('done', 'confirmed', 'failed') and changed < ? limit ?) returning number",
        (before, SWEEP_ROWS_MAX),
    )
    return len(list(removed))


@reading
def next_tombstone(transaction: Transaction) -> float | None:
    """When the oldest tombstone became one; None where there is none."""
    times = [
        transaction.execute("select min(changed) from pubsub_http_inbox where standing = ?", (str(standing),)).get
        for standing in (Standing.DONE, Standing.CONFIRMED, Standing.FAILED)
    ]
    return min((float(time) for time in times if time is not None), default=None)


@reading
def latest(transaction: Transaction) -> float:
    """The latest moment that is stored; 0 for none."""
    times = [
        transaction.execute("select max(changed) from pubsub_http_inbox where standing = ?", (str(standing),)).get
        for standing in Standing
    ]
    return max((float(time) for time in times if time is not None), default=0.0)


def _values(one: Incoming) -> tuple[Any, ...]:
    session, number = session_of(one.key) or (None, None)
    return (
        one.owner, one.key, str(one.kind), one.method, one.path, one.query, headers_text(one.headers), one.body,
        one.print, one.received, one.response_url, str(one.standing), one.attempts, one.due, one.changed,
        *answer_columns(one.answer), one.problem, session, number,
    )  # fmt: skip


def _read(row: Sequence[Any]) -> Incoming:
    (
        owner, key, kind, method, path, query, headers, body, print_, received, response_url, standing, attempts, due,
        changed, status, answer_headers, answer_body, problem, _, _,
    ) = row  # fmt: skip
    return Incoming(
        owner, key, Kind(kind), method, path, query, read_headers(headers), body, print_, received, response_url,
        Standing(standing), attempts, due, changed, read_answer(status, answer_headers, answer_body), problem,
    )  # fmt: skip
