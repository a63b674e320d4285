"""Write outgoing rows by a caller's own connection, in the caller's own transaction.

The row is sent if that transaction commits, and never if it is rolled back. Nothing here commits or opens a
connection, and no client's state is used: any number of processes may write rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from pubsub.base.clock import SystemClock
from pubsub.client.arguments import Headers, check_bodies, check_headers, check_key
from pubsub.client.due import due_time
from pubsub.client.outgoing.failures import place_of, telling
from pubsub.client.outgoing.limits import OUTGOING_BYTES_MAX
from pubsub.client.outgoing.packing import encoded_headers
from pubsub.client.storage.transaction import Ticket
from pubsub.client.ttl import with_ttl
from pubsub.errors import CallerError, ConfigurationError, InvalidName, StorageError, TooLarge
from pubsub.protocol import check_new_topic

if TYPE_CHECKING:
    import psycopg

STATEMENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of bodies and keys in one statement; further rows are in a further statement."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_INSERT: Final = """
insert into pubsub.outgoing (topic, key, headers, body, deliver_at, ttl)
select %(topic)s, key, headers::jsonb, body,
    case when %(moment)s::timestamptz is not null then %(moment)s
        when %(delay)s::float8 is not null
        then least(clock_timestamp() + make_interval(secs => %(delay)s), now() + interval '90 days') end,
    make_interval(secs => %(ttl)s::float8)
from unnest(%(keys)s::bytea[], %(headers)s::text[], %(bodies)s::bytea[])
    with ordinality as message (key, headers, body, place)
order by place
"""


class RowTimes(TypedDict):
    """Keyword arguments of `write_rows` about time."""

    delay: float | None
    deliver_at: datetime | None
    ttl: float | None


class RowsToWrite(NamedTuple):
    """Checked messages, as rows of one topic.

    Attributes:
        headers: JSON text of each, or None.
        delay: seconds; None: none.
        moment: time of delivery; None: by `delay`, or at once.
        ttl: seconds; None: none.
    """

    topic: str
    bodies: Sequence[bytes]
    keys: Sequence[bytes]
    headers: Sequence[str | None]
    delay: float | None
    moment: datetime | None
    ttl: float | None

    def statements(self) -> Iterator[dict[str, Any]]:
        """Yield the parameters of each statement."""
        start = size = 0
        for at, (body, key) in enumerate(zip(self.bodies, self.keys, strict=True)):
            size += len(body) + len(key)
            if at > start and size > STATEMENT_BYTES_MAX:
                yield self._part(start, at)
                start, size = at, len(body) + len(key)
        if self.bodies:
            yield self._part(start, len(self.bodies))

    def _part(self, start: int, stop: int) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "bodies": list(self.bodies[start:stop]),
            "keys": list(self.keys[start:stop]),
            "headers": list(self.headers[start:stop]),
            "delay": self.delay,
            "moment": self.moment,
            "ttl": self.ttl,
        }


def checked(
    topic: str,
    bodies: Sequence[bytes],
    keys: Sequence[bytes],
    headers: Sequence[Headers | None],
    delay: float | None,
    deliver_at: datetime | None,
    ttl: float | None,
    wall: float,
) -> RowsToWrite:
    """Check the arguments of a put, as `Client.put_many` names them.

    Args:
        wall: the present time, seconds since 1970.

    Raises:
        CallerError: an argument is not allowed; InvalidName or TooLarge for names and sizes.
    """
    if check_new_topic(topic)[0] == "$":
        raise InvalidName("topic", topic, "an outgoing row cannot be for a topic that begins with $")
    bodies = check_bodies(bodies)
    for name, values in (("keys", keys), ("headers", headers)):
        if values and len(values) != len(bodies):
            raise CallerError(f"{name} has one for each message, or none: {len(values)} for {len(bodies)} messages")
    keys = [check_key(key) for key in keys] or [b""] * len(bodies)
    for each in headers or ():
        check_headers(each if ttl is None else with_ttl(each, ttl))
    if not headers and ttl is not None:
        with_ttl(None, ttl)
    for body, key in zip(bodies, keys, strict=True):
        if (size := len(body) + len(key)) > OUTGOING_BYTES_MAX:
            raise TooLarge("body and key of an outgoing row", size, OUTGOING_BYTES_MAX, "OUTGOING_BYTES_MAX")
    due = due_time(delay, deliver_at, wall)
    moment = _EPOCH + timedelta(microseconds=due) if due and deliver_at is not None else None
    texts = [encoded_headers(each) if each else None for each in headers] or [None] * len(bodies)
    return RowsToWrite(topic, bodies, keys, texts, delay, moment, ttl)


def check_alone(transaction: object, timeout: object) -> None:
    """Check that a put by a caller's connection has no argument that needs the client's own state.

    Raises:
        CallerError: it has one.
    """
    for name, value in (("transaction", transaction), ("timeout", timeout)):
        if value is not None:
            raise CallerError(
                f"a put by connection= has no {name}: the row is sent after your own commit, by the relay"
            )


def connection_of(value: Any) -> psycopg.Connection[Any]:
    """Return the psycopg connection of a value: a connection, or an object whose `driver_connection` is one.

    SQLAlchemy's `session.connection().connection` is such an object.

    Raises:
        CallerError: it is none.
        ConfigurationError: psycopg is not installed.
    """
    found, driver = _unwrapped(value)
    if isinstance(found, driver.AsyncConnection):
        raise CallerError("connection is a psycopg.AsyncConnection; AsyncClient takes it")
    if not isinstance(found, driver.Connection):
        raise _no_connection(found)
    return cast("psycopg.Connection[Any]", found)


def async_connection_of(value: Any) -> psycopg.AsyncConnection[Any]:
    """Return the asynchronous connection of a value, as `connection_of`."""
    found, driver = _unwrapped(value)
    if isinstance(found, driver.Connection):
        raise CallerError("connection is a psycopg.Connection, which would block the event loop; Client takes it")
    if not isinstance(found, driver.AsyncConnection):
        raise _no_connection(found)
    return cast("psycopg.AsyncConnection[Any]", found)


def _unwrapped(value: Any) -> tuple[Any, Any]:
    try:
        import psycopg  # noqa: PLC0415 - the package is optional.
    except ImportError as error:
        raise ConfigurationError(f"a put by connection= needs pip install '.[postgres]' in a clone ({error})") from None
    return getattr(value, "driver_connection", value), psycopg


def _no_connection(found: object) -> CallerError:
    kind = f"{type(found).__module__}.{type(found).__qualname__}"
    hint = ""
    if kind.startswith("psycopg2"):
        hint = "; psycopg2 is the older driver: use psycopg 3 (postgresql+psycopg:// with SQLAlchemy)"
    elif kind.startswith("sqlalchemy"):
        hint = "; give session.connection().connection"
    elif kind.startswith("django"):
        hint = "; give connection.connection, within atomic()"
    return CallerError(f"connection is a connection of psycopg 3, not {kind}{hint}")


@contextmanager
def _errors(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Iterator[None]:
    """Say what to do about missing tables and rights. Other errors of the caller's transaction pass unchanged."""
    from psycopg import errors  # noqa: PLC0415 - the package is optional.

    try:
        with telling(connection):
            yield
    except StorageError as error:
        cause = error.__cause__
        if isinstance(cause, errors.CheckViolation):
            reason = f"{place_of(connection)} refused the row: {cause.diag.constraint_name}"
            raise CallerError(reason) from cause
        assert cause is not None
        raise cause from None


def write_rows(
    connection: Any,
    topic: str,
    bodies: Sequence[bytes],
    *,
    keys: Sequence[bytes] = (),
    headers: Sequence[Headers | None] = (),
    delay: float | None = None,
    deliver_at: datetime | None = None,
    ttl: float | None = None,
) -> None:
    """Write messages as outgoing rows by a connection of the caller, in its transaction, without a client.

    The relay of the database sends them after the commit, each once and in order, and never after a rollback.

    Args:
        connection: a `psycopg.Connection`, or what SQLAlchemy's `session.connection().connection` gives.
        topic, bodies, keys, headers, delay, deliver_at, ttl: as for `Client.put_many`.

    Raises:
        CallerError: an argument is not allowed, or the table refused a row; InvalidName, TooLarge for names and sizes.
        ConfigurationError: the database has no table for outgoing rows, or the role may not write there.
        psycopg.Error: any other error of the caller's transaction.
    """
    found = connection_of(connection)
    rows = checked(topic, bodies, keys, headers, delay, deliver_at, ttl, SystemClock().wall())
    statements = [*rows.statements()]
    # A transaction block of a connection that is idle would commit at its end, which only the caller may do.
    block = found.transaction() if found.autocommit and len(statements) > 1 else nullcontext()
    with _errors(found), block:
        for parameters in statements:
            found.cursor().execute(_INSERT, parameters, prepare=False)


async def write_rows_async(
    connection: Any,
    topic: str,
    bodies: Sequence[bytes],
    *,
    keys: Sequence[bytes] = (),
    headers: Sequence[Headers | None] = (),
    delay: float | None = None,
    deliver_at: datetime | None = None,
    ttl: float | None = None,
) -> None:
    """Write messages as outgoing rows as `write_rows`, by a `psycopg.AsyncConnection`."""
    found = async_connection_of(connection)
    rows = checked(topic, bodies, keys, headers, delay, deliver_at, ttl, SystemClock().wall())
    statements = [*rows.statements()]
    block = found.transaction() if found.autocommit and len(statements) > 1 else nullcontext()
    with _errors(found):
        async with block:
            for parameters in statements:
                await found.cursor().execute(_INSERT, parameters, prepare=False)


class RowTicket(Ticket):
    """The ticket of a message that is an outgoing row: it has no number before the relay takes it."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def __repr__(self) -> str:
        return "<Ticket of an outgoing row>"

    @property
    def counter(self) -> int:
        """Raise CallerError: the relay numbers the message after the caller's commit."""
        raise CallerError("an outgoing row has no number yet: the relay numbers it after your commit")

    @property
    def done(self) -> bool:
        """False: only the caller's commit, and then the relay, decide."""
        return False

    @property
    def discarded(self) -> bool:
        """False, as `done`."""
        return False
