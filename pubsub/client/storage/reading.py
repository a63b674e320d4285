"""Read a client's state file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from pubsub.client.storage.disk_errors import storage_errors
from pubsub.errors import StoreDamaged
from pubsub.protocol import Position
from pubsub.protocol.names import Start, parse_start


class Reading:
    """The content of an open state file.

    Attributes:
        path: the file.
        db: the connection to it.
    """

    path: str
    db: apsw.Connection

    def state(self, key: str) -> Any:
        """Return one of the client's own values: store, milliseconds, known, cuts, boot, clean."""
        return self.db.execute("select value from pubsub_state where key = ?", (key,)).get

    def known_milliseconds(self) -> list[int]:
        """Return the milliseconds of all used numbers, from the first remembered one on; see `Numbers`."""
        latest = self.state("milliseconds")
        known = [int(one) for one in str(self.state("known")).split(",") if one.isdecimal()]
        return known if known[-1:] == [latest] else [latest]  # An older release kept no list.

    def rows(self) -> Iterator[tuple[int, str, int, int, int, int, int]]:
        """Yield the outbox in order: counter, topic, previous, count, whole, checksum, bytes of the body."""
        yield from self.db.execute(
            "select counter, topic, previous, count, whole, checksum, length(body) from pubsub_outbox order by counter"
        )

    def has_row(self, counter: int) -> bool:
        return bool(self.db.execute("select count(*) from pubsub_outbox where counter = ?", (counter,)).get)

    def body(self, counter: int) -> bytes:
        """Return the batch of an outbox row.

        Raises:
            StorageError: it cannot be read.
        """
        with storage_errors(self.path):
            body = self.db.execute("select body from pubsub_outbox where counter = ?", (counter,)).get
        if not isinstance(body, bytes):
            raise StoreDamaged(self.path, f"the outbox row {counter} is gone")
        return body

    def chains(self) -> Iterator[tuple[str, int, int, str]]:
        """Yield topic, previous counter, cleared power cut and log of each topic with puts."""
        yield from self.db.execute("select topic, previous, cleared, log from pubsub_chains")

    def subscriptions(self) -> Iterator[tuple[str, bool, bool, bool, int, str, Position | None, Position | None, int]]:
        """Yield topic, wanted, settled, fresh, number, log, last position, tried position and attempts of each."""
        for topic, wanted, settled, fresh, number, log, last_log, last, tried_log, tried, attempts in self.db.execute(
            "select topic, wanted, settled, fresh, number, log,"
            " last_log, last_offset, tried_log, tried_offset, attempts from pubsub_subscriptions"
        ):
            position = None if last_log is None else (last_log, last)
            yield topic, bool(wanted), bool(settled), bool(fresh), number, log, position, (tried_log, tried), attempts

    def starts(self) -> Iterator[tuple[str, Start]]:
        """Yield each topic with a subscription that does not begin at the end, and its start."""
        for topic, start in self.db.execute("select topic, start from pubsub_starts"):
            yield topic, parse_start(start)

    def replays(self) -> Iterator[tuple[str, int]]:
        """Yield each topic with a replay, and the number of its last one."""
        yield from self.db.execute("select topic, number from pubsub_replays")

    def taken(self, topic: str) -> dict[str, int]:
        """Return the last taken counter of each publisher of a topic."""
        return dict(self.db.execute("select publisher, counter from pubsub_taken where topic = ?", (topic,)))

    def untold(self) -> list[tuple[str, str, str, str]]:
        """Return topic, first and last position and reason of each loss that was not raised yet, oldest first."""
        return list(
            self.db.execute(
                "select topic, first, last, error from pubsub_dead_letters join pubsub_untold using (id, topic)"
                " order by id"
            )
        )

    def dead_letters(self, topic: str | None) -> list[tuple[Any, ...]]:
        """Return the dead letters of one topic or of all, oldest first, in the order of `DeadLettered`'s fields.

        Key and headers are None for a message without either.
        """
        return list(
            self.db.execute(
                "select topic, first, last, publisher, counter, stamp, body, error, attempts, at, key, headers"
                " from pubsub_dead_letters left join pubsub_letters_beside using (id)"
                " where ?1 is null or topic = ?1 order by id",
                (topic,),
            )
        )
