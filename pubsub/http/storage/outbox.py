"""The outbox on the disk: requests that are not settled, and the tombstones of those that are, with their responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pubsub.client.storage.transaction import Transaction
from pubsub.http.core.limits import SWEEP_ROWS_MAX
from pubsub.http.core.outgoing import OVER, Kind, Outgoing, State
from pubsub.http.storage.columns import answer_columns, headers_text, read_answer, read_headers, reading

_COLUMNS: Final = (
    "id, kind, method, url, headers, body, print, created, expires, due, state, attempts, status, answer_headers,"
    " answer_body, problem, confirm, listen, changed"
)
_ACTIVE: Final = "(state in ('open', 'accepted') or confirm != '')"


def add(transaction: Transaction, request: Outgoing) -> None:
    """Store a request that is not there."""
    transaction.execute(f"insert into pubsub_http_outbox ({_COLUMNS}) values ({_marks(19)})", _values(request))  # noqa: S608


def save(transaction: Transaction, request: Outgoing) -> None:
    """Store a request in place of what there is of it; where nothing is, it was forgotten, and stays so."""
    values = _values(request)
    names = [f"{name.strip()} = ?" for name in _COLUMNS.split(",")]
    transaction.execute(f"update pubsub_http_outbox set {', '.join(names)} where id = ?", (*values, request.id))  # noqa: S608


@reading
def find(transaction: Transaction, name: str) -> Outgoing | None:
    """The request of that ID."""
    for row in transaction.execute(f"select {_COLUMNS} from pubsub_http_outbox where id = ?", (name,)):  # noqa: S608
        return _read(row)
    return None


@reading
def active(transaction: Transaction) -> list[tuple[str, str, str, float]]:
    """ID, state, URL and time of all that is still to be done, a confirmation included."""
    rows = transaction.execute(f"select id, state, url, due from pubsub_http_outbox where {_ACTIVE} order by due")  # noqa: S608
    return [(str(name), str(state), str(url), float(due)) for name, state, url, due in rows]


@reading
def every(transaction: Transaction, *, open_only: bool) -> list[Outgoing]:
    """All requests without their bodies, in the order in which they were stored; `open_only`: no tombstones."""
    columns = _COLUMNS.replace(" body,", " x'' as body,")
    where = "where state in ('open', 'accepted')" if open_only else ""
    rows = transaction.execute(f"select {columns} from pubsub_http_outbox {where} order by created, id")  # noqa: S608
    return [_read(row) for row in rows]


def measure(transaction: Transaction) -> tuple[int, int]:
    """How many requests are not settled, and the bytes of their bodies."""
    query = (
        "select count(*), coalesce(sum(length(body)), 0) from pubsub_http_outbox where state in ('open', 'accepted')"
    )
    count, size = transaction.execute(query).get
    return int(count), int(size)


def remove(transaction: Transaction, name: str) -> bool:
    """Take a request out, whatever its state; whether there was one."""
    return bool(list(transaction.execute("delete from pubsub_http_outbox where id = ? returning id", (name,))))


def sweep(transaction: Transaction, before: float) -> int:
    """Take out tombstones that are older; how many of them, at most SWEEP_ROWS_MAX."""
    removed = transaction.execute(
        "delete from pubsub_http_outbox where id in (select id from pubsub_http_outbox"
        " where state in ('done', 'refused', 'expired') and changed < ? limit ?) returning id",
        (before, SWEEP_ROWS_MAX),
    )
    return len(list(removed))


@reading
def next_tombstone(transaction: Transaction) -> float | None:
    """When the oldest tombstone became one; None where there is none."""
    times = [  # One look into the index each.
        transaction.execute("select min(changed) from pubsub_http_outbox where state = ?", (str(state),)).get
        for state in sorted(OVER)
    ]
    return min((float(time) for time in times if time is not None), default=None)


@reading
def latest(transaction: Transaction) -> float:
    """The latest moment that is stored; 0 for none."""
    times = [
        transaction.execute("select max(changed) from pubsub_http_outbox where state = ?", (str(state),)).get
        for state in State
    ]
    return max((float(time) for time in times if time is not None), default=0.0)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _values(one: Outgoing) -> tuple[Any, ...]:
    return (
        one.id, str(one.kind), one.method, one.url, headers_text(one.headers), one.body, one.print, one.created,
        one.expires, one.due, str(one.state), one.attempts, *answer_columns(one.answer), one.problem, one.confirm,
        one.listen, one.changed,
    )  # fmt: skip


def _read(row: Sequence[Any]) -> Outgoing:
    (
        name, kind, method, url, headers, body, print_, created, expires, due, state, attempts, status, answer_headers,
        answer_body, problem, confirm, listen, changed,
    ) = row  # fmt: skip
    return Outgoing(
        name, Kind(kind), method, url, read_headers(headers), body, print_, created, expires, due, State(state),
        attempts, read_answer(status, answer_headers, answer_body), problem, confirm, listen, changed,
    )  # fmt: skip
