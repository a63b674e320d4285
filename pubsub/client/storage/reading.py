"""Read a client's state, by statements of the common subset of SQL (see `interface`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from pubsub.client.core.message import RunSlice
from pubsub.client.storage.interface import HandlerDatabase, Value
from pubsub.errors import StoreDamaged
from pubsub.protocol import Position, Run, parse_position
from pubsub.protocol.names import Start, parse_start


class LetterRow(NamedTuple):
    """A dead letter without its body.

    Attributes:
        number: its number in the table.
        first: message ID, or the first position of a range.
        at: seconds since 1970.
        size: bytes of body, key and headers; None for a range.
    """

    number: int
    topic: str
    first: str
    key: bytes
    at: float
    size: int | None


class Reading(ABC):
    """The content of a client's open state.

    Attributes:
        path: its place, as text for errors.
    """

    path: str
    life_ended: bool = False

    @abstractmethod
    def query(self, statement: str, parameters: Sequence[Value] = ()) -> Iterable[tuple[Any, ...]]:
        """Run a statement of the common subset, and return its rows."""

    @abstractmethod
    def errors(self, *, loading: bool = False) -> AbstractContextManager[None]:
        """Turn errors of the database into ours; `loading`: also those of a row of the wrong form."""

    @abstractmethod
    def state(self, key: str) -> Any:
        """Return one of the client's own values: store, milliseconds, known, cuts."""

    def handler_database(self) -> HandlerDatabase | None:
        """Return None: handlers use the session's own connection."""
        return None

    def value(self, statement: str, parameters: Sequence[Value] = ()) -> Any:
        """Return the first value of the first row; None if there is no row."""
        for row in self.query(statement, parameters):
            return row[0]
        return None

    def known_milliseconds(self) -> list[int]:
        """Return the milliseconds of all used numbers, from the first remembered one on; see `Numbers`."""
        latest = self.state("milliseconds")
        known = [int(one) for one in str(self.state("known")).split(",") if one.isdecimal()]
        return known if known[-1:] == [latest] else [latest]  # An older release kept no list.

    def rows(self) -> Iterator[tuple[int, str, int, int, int, int, int]]:
        """Yield the outbox in order: counter, topic, previous, count, whole, checksum, bytes of the body."""
        yield from self.query(
            "select counter, topic, previous, count, whole, checksum, length(body) from pubsub_outbox order by counter"
        )

    def has_row(self, counter: int) -> bool:
        return bool(self.value("select count(*) from pubsub_outbox where counter = ?", (counter,)))

    def body(self, counter: int) -> bytes:
        """Return the batch of an outbox row.

        Raises:
            StorageError: it cannot be read.
        """
        with self.errors():
            body = self.value("select body from pubsub_outbox where counter = ?", (counter,))
        if not isinstance(body, bytes):
            raise StoreDamaged(self.path, f"the outbox row {counter} is gone")
        return body

    def chains(self) -> Iterator[tuple[str, int, int, str]]:
        """Yield topic, previous counter, cleared power cut and log of each topic with puts."""
        yield from self.query("select topic, previous, cleared, log from pubsub_chains")

    def subscriptions(self) -> Iterator[tuple[str, bool, bool, bool, int, str, Position | None, Position | None, int]]:
        """Yield topic, wanted, settled, fresh, number, log, last position, tried position and attempts of each."""
        for topic, wanted, settled, fresh, number, log, last_log, last, tried_log, tried, attempts in self.query(
            "select topic, wanted, settled, fresh, number, log,"
            " last_log, last_offset, tried_log, tried_offset, attempts from pubsub_subscriptions"
        ):
            position = None if last_log is None else (last_log, last)
            yield topic, bool(wanted), bool(settled), bool(fresh), number, log, position, (tried_log, tried), attempts

    def starts(self) -> Iterator[tuple[str, Start]]:
        """Yield each topic with a subscription that does not begin at the end, and its start."""
        for topic, start in self.query("select topic, start from pubsub_starts"):
            yield topic, parse_start(start)

    def patterns(self) -> list[tuple[str, bool, bool, int, int]]:
        """Return pattern, wanted, settled, number and stamp of each pattern of topics."""
        rows = self.query("select pattern, wanted, settled, number, stamp from pubsub_patterns order by pattern")
        return [(pattern, bool(on), bool(settled), number, stamp) for pattern, on, settled, number, stamp in rows]

    def joined(self) -> list[tuple[str, int]]:
        """Return each topic that a pattern brought, with the number of the pattern."""
        return list(self.query("select topic, pattern from pubsub_joined order by topic"))

    def replays(self) -> Iterator[tuple[str, int]]:
        """Yield each topic with a replay, and the number of its last one."""
        yield from self.query("select topic, number from pubsub_replays")

    def taken(self, topic: str) -> dict[str, int]:
        """Return the last taken counter of each publisher of a topic."""
        return dict(self.query("select publisher, counter from pubsub_taken where topic = ?", (topic,)))

    def retries(self) -> Iterator[tuple[str, Position, float, float, int]]:
        """Yield topic, position, due time, length of the wait, and number of attempts that are no failures."""
        for topic, log, offset, due, seconds, later in self.query(
            'select topic, log, "offset", due, seconds, later from pubsub_retries'
        ):
            yield topic, (log, offset), due, seconds, later

    def waiting(self) -> Iterator[tuple[int, str, bytes, int, int, int, float, float]]:
        """Yield number, topic, lane, size, attempts, later, due time and length of the wait of each, in order."""
        yield from self.query(
            "select number, topic, lane, length(body) + length(key) + length(headers), attempts, later, due, seconds"
            " from pubsub_later order by number"
        )

    def waiting_piece(self, number: int) -> RunSlice:
        """Return a waiting message, as a record of the service.

        Raises:
            StorageError: it cannot be read.
        """
        with self.errors():
            found = list(
                self.query(
                    "select first, publisher, counter, stamp, body, key, headers, doubtful from pubsub_later"
                    " where number = ?",
                    (number,),
                )
            )
        if not found:
            raise StoreDamaged(self.path, f"the waiting message {number} is gone")
        first, publisher, counter, stamp, body, key, headers, doubtful = found[0]
        position = parse_position(first)
        assert position is not None
        keys, heads = ((key,) if key else ()), ((headers,) if headers else ())
        run = Run(*position, publisher, counter, stamp, 0, (len(body),), keys, heads)
        return RunSlice(run, body, 0, 1, bool(doubtful))

    def groups(self) -> list[tuple[int, str, str, str, int, str, str, str, int, bool]]:
        """Return member, topic, name, store, number, log, values, wish, cuts and left of each membership."""
        rows = self.query(
            "select member, topic, name, store, number, log, told, wish, cuts, gone from pubsub_groups order by member"
        )
        return [(*row[:-1], bool(row[-1])) for row in rows]

    def group_done(self, member: int) -> list[tuple[str, int, int, int]]:
        """Return log, part, low and high of each finished range that a membership may not have told."""
        statement = "select log, part, low, high from pubsub_group_done where member = ? order by 1, 2, 3"
        return list(self.query(statement, (member,)))

    def group_begun(self, member: int) -> list[tuple[str, int, int]]:
        """Return log, offset and number of each attempt that a membership has begun and may not have told."""
        statement = "select log, place, attempts from pubsub_group_begun where member = ? order by 1, 2"
        return list(self.query(statement, (member,)))

    def files(self) -> list[tuple[str | bytes, str | bytes, int]]:
        """Return path, part file and committed length of each file that the command `get` has not finished."""
        return [(path, part, size) for path, part, size in self.query("select path, part, size from pubsub_files")]

    def untold(self) -> list[tuple[str, str, str, str]]:
        """Return topic, first and last position and reason of each loss that was not raised yet, oldest first.

        Deletions of topics follow, without positions.
        """
        letters = "select topic, first, last, error from pubsub_dead_letters join pubsub_untold using (id, topic)"
        deletions = "select topic, '', '', reason from pubsub_deletions"
        return [row for statement in (letters, deletions) for row in self.query(f"{statement} order by id")]

    def untold_letters(self) -> set[int]:
        """Return the numbers of the dead letters of losses that were not raised yet."""
        return {number for (number,) in self.query("select id from pubsub_untold")}

    def letters(self, topic: str | None) -> list[LetterRow]:
        """Return what is known of the dead letters of one topic, or of all, without their bodies, oldest first."""
        found = self._letters(
            "id, topic, first, key, at, length(body) + length(coalesce(key, '')) + length(coalesce(headers, ''))",
            (),
            topic,
        )
        return [LetterRow(number, name, first, key or b"", at, size) for number, name, first, key, at, size in found]

    def _letters(self, columns: str, parameters: Sequence[Value], topic: str | None) -> Iterable[tuple[Any, ...]]:
        statement = f"select {columns} from pubsub_dead_letters left join pubsub_letters_beside using (id)"  # noqa: S608
        if topic is None:
            return self.query(f"{statement} order by id", parameters)
        return self.query(f"{statement} where topic = ? order by id", (*parameters, topic))

    def letter_contents(self, number: int) -> tuple[bytes, bytes, bytes]:
        """Return body, key and encoded headers of a dead letter."""
        statement = (
            "select body, key, headers from pubsub_dead_letters left join pubsub_letters_beside using (id) where id = ?"
        )
        body, key, headers = next(iter(self.query(statement, (number,))))
        return body, key or b"", headers or b""

    def dead_letters(self, topic: str | None, *, bodies: bool = True) -> list[tuple[Any, ...]]:
        """Return the dead letters of one topic or of all, oldest first, in the order of `DeadLettered`'s fields.

        Key and headers are None for a message without either. `bodies`: read them; otherwise all are empty.
        """
        body, parameters = ("body", ()) if bodies else ("case when body is null then null else ? end", (b"",))
        columns = f"topic, first, last, publisher, counter, stamp, {body}, error, attempts, at, key, headers"
        return list(self._letters(columns, parameters, topic))
