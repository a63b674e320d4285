"""Move outgoing rows into the outbox of the relay's client, a transaction a time, and keep the outbox going out.

A transaction deletes rows and adds them, as numbered batches, to the outbox. Both are one commit, so a row is taken
once. From there on the batches are puts of a client: a server that gets one again recognises its number.

The rule is docs/explanation/outgoing.md, OR1.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from pubsub.base.limits import BATCH_BYTES_MAX
from pubsub.client.core.chain import Chain
from pubsub.client.outgoing.failures import telling
from pubsub.client.outgoing.limits import TAKEN_BYTES_MAX, TAKEN_ROWS_MAX
from pubsub.client.outgoing.taking import take
from pubsub.client.relaying.pressure import Pressure
from pubsub.errors import StorageError

if TYPE_CHECKING:
    from pubsub.client.flows.calls import Calls
    from pubsub.client.relaying.watch import Watch
    from pubsub.client.reopening import Reopening
    from pubsub.client.session import Session

AGAIN_SECONDS: Final = 1.0
"""Time between two tries to send on a topic after a refusal."""

_NO_END: Final = float("inf")
_ROOM: Final = TAKEN_BYTES_MAX + 2 * BATCH_BYTES_MAX
"""Free bytes of the outbox before a transaction: for its rows, and the last of them may be large."""

_READ_COMMITTED: Final = "read committed"
_ISOLATE: Final = "set default_transaction_isolation = 'read committed'"
_LOCK: Final = "select current_setting('transaction_isolation') from pubsub.state where client = %s for update"

_log: Final = logging.getLogger("pubsub.relay")


class Turn(Enum):
    """What a turn took."""

    IDLE = auto()
    """Nothing."""
    SOME = auto()
    """All rows there were."""
    FULL = auto()
    """As many as a transaction takes: there are more."""


class Relay:
    """The work of one relay whose client is open.

    Args:
        held: the sessions of its client, whose state is in the database of the rows.
        watch: looks at the table.

    Attributes:
        taken, refused: rows moved to the outbox, and to `pubsub.refused`, since the start.
        pressure: the topics from which it takes no rows.
    """

    def __init__(self, held: Reopening, watch: Watch) -> None:
        self._held, self._watch = held, watch
        self.taken = self.refused = 0
        self.pressure = Pressure()
        self._before = self.unfinished()
        self._again: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._isolated: Any = None

    @property
    def session(self) -> Session:
        """The open session."""
        return self._held.current().session

    def unfinished(self) -> int:
        """Count the messages in the outbox."""
        session = self.session
        with session.entered():
            return sum([row.count for chain in session.core.outbox.chains.values() for row in chain.rows])

    @property
    def sent(self) -> int:
        """Messages that servers have stored since the start."""
        return self._before + self.taken - self.unfinished()

    def turn(self) -> Turn:
        """Take the oldest rows, if there are any and there is room for them.

        Raises:
            StorageError: the database failed; nothing was taken, and the next turn continues. StoreInUse: another
                relay is active. StateCopied: the database is a copy.
            ConfigurationError: the tables are missing, or the role lacks a right.
        """
        calls = self._held.current()
        session = calls.session
        with session.entered():
            outbox = session.core.outbox
            if session.core.copied is not None:
                raise session.core.copied
            chains = [chain for chain in outbox.chains.values() if chain.rows]
            self._keep_sending(session, chains)
            room = outbox.bytes + _ROOM <= outbox.bytes_max
        self._look(chains, session.now)
        if not room or self.pressure.waits or not self._watch.is_waiting(self.pressure.full):
            return Turn.IDLE
        return self._take(calls)

    def _take(self, calls: Calls) -> Turn:
        session, connection = calls.session, calls.session.store.connection
        if self._isolated is not connection:
            with telling(connection):
                connection.execute(_ISOLATE)
            self._isolated = connection
        with calls.puts.transaction() as transaction:
            connection = transaction.connection
            with telling(connection):
                row = connection.execute(_LOCK, (session.name,)).fetchone()
                if row is None or row[0] != _READ_COMMITTED:  # It has connected again since.
                    self._isolated = None
                    raise StorageError(session.store.path, f"the transaction must be {_READ_COMMITTED}; trying again")
                packed = take(connection, session.clock.wall(), blocked=self.pressure.full)
            rows = [row for topic, batches in packed.batches for row in transaction.put_batches(topic, batches)]
        count = sum([row.count for row in rows])
        self.taken += count
        self.refused += len(packed.refused)
        for number, reason in packed.refused:
            _log.error("row %d cannot be a message and is in pubsub.refused now: %s", number, reason)
        if count + len(packed.refused) >= TAKEN_ROWS_MAX or sum([row.size for row in rows]) >= TAKEN_BYTES_MAX:
            return Turn.FULL
        return Turn.SOME if count or packed.refused else Turn.IDLE

    def _keep_sending(self, session: Session, chains: list[Chain]) -> None:
        """Let unfinished messages go out without a time limit, also those of an earlier start. The lock is held."""
        now = session.now
        for chain in chains:
            topic = chain.topic
            if chain.failure is not None and self._told.get(topic) != str(chain.failure):
                self._told[topic] = str(chain.failure)
                _log.warning("%s waits: %s", topic, chain.failure)
            if chain.until == _NO_END or now < self._again.get(topic, now):
                continue
            self._again[topic] = now + AGAIN_SECONDS
            session.core.finish(topic, _NO_END)
        if chains:
            session.follow()

    def _look(self, chains: list[Chain], now: float) -> None:
        """Note which topics are full, and say which become slow."""
        became, over = self.pressure.look(chains, now)
        troubles = {chain.topic: str(chain.failure or chain.trouble) for chain in chains}
        for topic in became:
            why = troubles.get(topic) or "no answer yet"
            _log.warning("%s is slow (%s); its rows stay in the table, others go on", topic, why)
        for topic in over:
            self._told.pop(topic, None)
            _log.info("%s goes on", topic)
