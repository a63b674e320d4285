"""Take outgoing rows in the transaction of the relay's outbox: committed together, a row is taken once.

The transaction is READ COMMITTED, so that its second statement sees every row that was committed before it began. The
first statement locks the client's row of state: a relay whose life has ended waits there until its successor has
committed, and then fails at the end of its transaction. No row is skipped because another transaction has locked it:
a row that is passed over could be taken after a later row of its topic.

The rule is docs/explanation/outgoing.md, OR2.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from pubsub.base.clock import MICROSECONDS
from pubsub.client.outgoing.limits import COUNTED_ROWS_MAX, TAKEN_BYTES_MAX, TAKEN_ROWS_MAX
from pubsub.client.outgoing.packing import OutgoingRow, Packed, pack

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_PLAN: Final = "select set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true)"
"""The statistics of a table that fills and empties are always wrong: both steps must go by the primary key."""

_TAKE: Final = f"""
with next as materialized (
    select id, octet_length(body) + octet_length(key) as size from pubsub.outgoing
    where topic <> all(%s) order by id limit %s for update
), fitting as (
    select id from (select id, sum(size) over (order by id) - size as before from next) as sized where before < %s
)
delete from pubsub.outgoing as o using fitting where o.id = fitting.id
returning o.id, o.topic, o.key, o.headers::text, o.body,
    case when o.deliver_at is null then null when isfinite(o.deliver_at)
        then (extract(epoch from o.deliver_at) * {MICROSECONDS})::bigint else 1 end,
    extract(epoch from o.ttl)::float8,
    o.deliver_at::text, o.ttl::text, o.written_at::text
"""  # noqa: S608 - the number is a constant.

_REFUSE: Final = """
insert into pubsub.refused (id, topic, key, headers, body, deliver_at, ttl, written_at, reason)
values (%s, %s, %s, %s::jsonb, %s, %s::timestamptz, %s::interval, %s::timestamptz, %s)
"""

_WAITING: Final = "select exists (select from pubsub.outgoing where topic <> all(%s))"
"""Whether a row waits. It is asked outside of any transaction, so that an idle relay commits nothing."""

_BEHIND: Final = f"""
select (select count(*) from (select from pubsub.outgoing limit {COUNTED_ROWS_MAX}) as counted),
    (select extract(epoch from clock_timestamp() - written_at)::float8 from pubsub.outgoing order by id limit 1),
    (select count(*) from (select from pubsub.refused limit {COUNTED_ROWS_MAX}) as counted)
"""  # noqa: S608
"""Rows that wait, age of the oldest in seconds, refused rows."""


def take(
    connection: Connection, wall: float, *, blocked: Collection[str] = (), rows: int = TAKEN_ROWS_MAX,
    size: int = TAKEN_BYTES_MAX,
) -> Packed:  # fmt: skip
    """Take the oldest rows out of the table within an open READ COMMITTED transaction of the relay's client.

    Rows that cannot be messages move to `pubsub.refused` in the same transaction.

    Args:
        connection: the transaction's; the client's row of state is locked.
        wall: the present time, seconds since 1970.
        blocked: topics whose rows stay.
        rows: most rows.
        size: bytes of bodies and keys above which no further row is taken.

    Returns:
        The batches to put in the same transaction, and the refused rows.
    """
    connection.execute(_PLAN)
    # Binary, since a body as text has twice its size.
    with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        found = cursor.execute(_TAKE, (list(blocked), rows, size)).fetchall()
    packed = pack([OutgoingRow(*row[:7]) for row in found], wall)
    if packed.refused:
        _refuse(connection, {row[0]: row for row in found}, packed.refused)
    return packed


def _refuse(connection: Connection, rows: dict[int, Sequence[Any]], refused: Sequence[tuple[int, str]]) -> None:
    parameters = []
    for number, reason in refused:
        id_, topic, key, headers, body, _, _, deliver_at, ttl, written_at = rows[number]
        parameters.append((id_, topic, key, headers, body, deliver_at, ttl, written_at, reason))
    with connection.cursor() as cursor:
        cursor.executemany(_REFUSE, parameters)


def is_waiting(connection: Connection, blocked: Collection[str] = ()) -> bool:
    """Return whether a row waits in the table, outside of any transaction."""
    row = connection.execute(_WAITING, (list(blocked),)).fetchone()
    return row is not None and bool(row[0])


def behind(connection: Connection) -> tuple[int, float, int]:
    """Return the number of waiting rows, the age of the oldest in seconds, and the number of refused rows.

    Both numbers are counted up to COUNTED_ROWS_MAX.
    """
    row = connection.execute(_BEHIND).fetchone()
    assert row is not None
    return row[0], row[1] or 0.0, row[2]
