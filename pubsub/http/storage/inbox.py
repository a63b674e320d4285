"""The stored inbox: unhandled requests, and tombstones of handled ones with their responses."""

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
    marks = ", ".join("?" * 21)
    transaction.execute(f"insert into pubsub_http_inbox ({_COLUMNS}) values ({marks})", _values(request))  # noqa: S608


def save(transaction: Transaction, request: Incoming) -> None:
    names = ", ".join(f"{name.strip()} = ?" for name in _COLUMNS.split(","))
    where = "where owner = ? and key = ?"
    transaction.execute(
        f"update pubsub_http_inbox set {names} {where}",  # noqa: S608
        (*_values(request), request.owner, request.key),
    )


@reading
def find(transaction: Transaction, owner: str, key: str) -> Incoming | None:
    query = f"select {_COLUMNS} from pubsub_http_inbox where owner = ? and key = ?"  # noqa: S608
    for row in transaction.execute(query, (owner, key)):
        return _read(row)
    return None


@reading
def waiting(transaction: Transaction) -> list[tuple[str, str, float]]:
    """Return owner, key and due time of unhandled requests, in order of arrival."""
    query = "select owner, key, due from pubsub_http_inbox where standing = 'received' order by number"
    return [(str(owner), str(key), float(due)) for owner, key, due in transaction.execute(query)]


@reading
def every(transaction: Transaction, *, open_only: bool) -> list[Incoming]:
    """Return all requests without their bodies, in order of arrival; `open_only`: unhandled and failed ones only."""
    columns = _COLUMNS.replace(" body,", " x'' as body,")
    where = "where standing in ('received', 'failed')" if open_only else ""
    return [
        _read(row)
        for row in transaction.execute(f"select {columns} from pubsub_http_inbox {where} order by number")  # noqa: S608
    ]


def measure(transaction: Transaction) -> tuple[int, int]:
    """Return the number of unhandled requests, and the bytes of their bodies."""
    query = "select count(*), coalesce(sum(length(body)), 0) from pubsub_http_inbox where standing = 'received'"
    count, size = transaction.execute(query).get
    return int(count), int(size)


def tombstones(transaction: Transaction) -> int:
    return int(transaction.execute("select count(*) from pubsub_http_inbox where standing != 'received'").get)


def remove(transaction: Transaction, owner: str, key: str) -> bool:
    """Remove a request in any state. Return whether there was one."""
    query = "delete from pubsub_http_inbox where owner = ? and key = ? returning number"
    return bool(list(transaction.execute(query, (owner, key))))


def finished(transaction: Transaction, owner: str, key: str) -> bool:
    """Return whether the sender of a key has reported its number as finished."""
    if (ours := session_of(key)) is None:
        return False
    query = "select number from pubsub_http_finished where owner = ? and session = ?"
    found = transaction.execute(query, (owner, ours[0])).get
    return found is not None and ours[1] <= int(found)


def finish(transaction: Transaction, owner: str, key: str, number: int, now: float) -> int:
    """Store the finished number of a sender's session, and return the number of tombstones that this removed.

    Unhandled requests stay: their sender has the acknowledgement, and their handlers must still be called.
    """
    if (ours := session_of(key)) is None or not number:
        return 0
    number = min(number, ours[1] - 1)  # The request itself is not finished, even if its sender claims so.
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
    """Remove older tombstones and sessions. Return the number of tombstones, at most SWEEP_ROWS_MAX."""
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
    """Return the time of the oldest tombstone, None if there is none."""
    times = [
        transaction.execute("select min(changed) from pubsub_http_inbox where standing = ?", (str(standing),)).get
        for standing in (Standing.DONE, Standing.CONFIRMED, Standing.FAILED)
    ]
    return min((float(time) for time in times if time is not None), default=None)


@reading
def latest(transaction: Transaction) -> float:
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
