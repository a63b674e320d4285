"""The stored outbox: unsettled requests, and tombstones of settled ones with their responses."""

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
    transaction.execute(f"insert into pubsub_http_outbox ({_COLUMNS}) values ({_marks(19)})", _values(request))  # noqa: S608


def save(transaction: Transaction, request: Outgoing) -> None:
    """Replace a stored request. If it was forgotten meanwhile, it stays so."""
    values = _values(request)
    names = [f"{name.strip()} = ?" for name in _COLUMNS.split(",")]
    transaction.execute(f"update pubsub_http_outbox set {', '.join(names)} where id = ?", (*values, request.id))  # noqa: S608


@reading
def find(transaction: Transaction, name: str) -> Outgoing | None:
    for row in transaction.execute(f"select {_COLUMNS} from pubsub_http_outbox where id = ?", (name,)):  # noqa: S608
        return _read(row)
    return None


@reading
def active(transaction: Transaction) -> list[tuple[str, str, str, float]]:
    """Return ID, state, URL and due time of all requests with work left, confirmations included."""
    rows = transaction.execute(f"select id, state, url, due from pubsub_http_outbox where {_ACTIVE} order by due")  # noqa: S608
    return [(str(name), str(state), str(url), float(due)) for name, state, url, due in rows]


@reading
def every(transaction: Transaction, *, open_only: bool) -> list[Outgoing]:
    """Return all requests without their bodies, in order of storing; `open_only`: no tombstones."""
    columns = _COLUMNS.replace(" body,", " x'' as body,")
    where = "where state in ('open', 'accepted')" if open_only else ""
    rows = transaction.execute(f"select {columns} from pubsub_http_outbox {where} order by created, id")  # noqa: S608
    return [_read(row) for row in rows]


def measure(transaction: Transaction) -> tuple[int, int]:
    """Return the number of unsettled requests, and the bytes of their bodies."""
    query = (
        "select count(*), coalesce(sum(length(body)), 0) from pubsub_http_outbox where state in ('open', 'accepted')"
    )
    count, size = transaction.execute(query).get
    return int(count), int(size)


def remove(transaction: Transaction, name: str) -> bool:
    """Remove a request in any state. Return whether there was one."""
    return bool(list(transaction.execute("delete from pubsub_http_outbox where id = ? returning id", (name,))))


def sweep(transaction: Transaction, before: float) -> int:
    """Remove older tombstones. Return their number, at most SWEEP_ROWS_MAX."""
    removed = transaction.execute(
        "delete from pubsub_http_outbox where id in (select id from pubsub_http_outbox"
        " where state in ('done', 'refused', 'expired') and changed < ? limit ?) returning id",
        (before, SWEEP_ROWS_MAX),
    )
    return len(list(removed))


@reading
def next_tombstone(transaction: Transaction) -> float | None:
    """Return the time of the oldest tombstone, None if there is none."""
    times = [  # Each query reads one entry of the index.
        transaction.execute("select min(changed) from pubsub_http_outbox where state = ?", (str(state),)).get
        for state in sorted(OVER)
    ]
    return min((float(time) for time in times if time is not None), default=None)


@reading
def latest(transaction: Transaction) -> float:
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
