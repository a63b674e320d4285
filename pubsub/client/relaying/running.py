"""Run a relay: wait as a spare until no other one is active, work, and go on after failures of the database.

The rule is docs/explanation/outgoing.md, OR6.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Final, NamedTuple

from pubsub.client.relaying.pressure import has_room
from pubsub.client.relaying.relay import Relay, Turn
from pubsub.client.relaying.watch import Watch
from pubsub.errors import PubsubError, StateCopied, StorageError, StoreInUse, StoreNewer
from pubsub.metrics.snapshot import Gauge, Snapshot

if TYPE_CHECKING:
    from pubsub.client.reopening import Reopening
    from pubsub.config.databases import DatabaseUrl
    from pubsub.metrics.handover import Handover

POLL_SECONDS: Final = 0.02
"""Time until the next look at the table after rows were taken."""

POLL_SECONDS_MAX: Final = 0.25
"""The same while there are none: each look in vain doubles it. A spare looks as often whether it may take over."""

LOOK_SHARE: Final = 0.2
"""Largest share of its time in which an idle relay looks at the table: a look passes over the rows of slow topics."""

RETRY_SECONDS_MAX: Final = 5.0
"""Longest wait after a failure of the database; each further failure doubles it."""

_log: Final = logging.getLogger("pubsub.relay")


class OpenedClient(NamedTuple):
    """The relay's open client: its sessions, and how to close it."""

    held: Reopening
    close: Callable[[], None]


class Running:
    """A relay of one database, active or as a spare.

    Args:
        url: of the database.
        wanted: the relay's client ID; None: the one of the database.
        open_client: opens a client by its ID, with its state in this database.
        stop: set from elsewhere to end it.
        ready: called with the client ID and True if it is active, False if it is a spare; once for each change.
        handover: takes requests for metrics; None: there are none.

    Attributes:
        name: the client ID.

    Raises:
        ConfigurationError, StorageError: the database cannot be used, or has another relay; as of `Watch`.
    """

    def __init__(
        self,
        url: DatabaseUrl,
        wanted: str | None,
        open_client: Callable[[str], OpenedClient],
        stop: Event,
        ready: Callable[[str, bool], None],
        handover: Handover | None = None,
    ) -> None:
        self._watch = Watch(url)
        try:
            self.name = self._watch.claim(wanted)
        except BaseException:
            self._watch.close()
            raise
        self._open, self._stop, self._ready, self._handover = open_client, stop, ready, handover
        self._relay: Relay | None = None
        self._taken = self._sent = self._refused = self._takeovers = 0
        self._standing_by = False

    def close(self) -> None:
        """Release the connection, in place of `run`."""
        self._watch.close()

    def run(self) -> None:
        """Work until `stop` is set.

        Raises:
            StateCopied, StoreNewer: an operator has to decide.
            ConfigurationError: the tables have vanished, or a right was withdrawn.
        """
        failures = 0
        try:
            while not self._stop.is_set():
                try:
                    client = self._opened()
                    if client is not None:
                        self._work(client)
                    failures = 0
                except (StateCopied, StoreNewer):
                    raise
                except StoreInUse as error:
                    _log.warning("%s", error)
                except StorageError as error:
                    failures += 1
                    _log.warning("%s", error)
                    self._pause(min(RETRY_SECONDS_MAX, POLL_SECONDS_MAX * 2 ** min(failures, 10)))
        finally:
            self._watch.close()

    def _opened(self) -> OpenedClient | None:
        """Open the client once no other relay has it open; None if that is not now."""
        if self._watch.is_free(self.name):
            with suppress(StoreInUse):  # Another spare was faster.
                return self._open(self.name)
        if not self._standing_by:
            self._standing_by = True
            _log.info("stands by, since another relay of this database is active")
            self._ready(self.name, False)
        self._pause(POLL_SECONDS_MAX)
        return None

    def _work(self, client: OpenedClient) -> None:
        """Work as the active relay until `stop` is set, or another one has taken over."""
        try:
            self._relay = relay = Relay(client.held, self._watch)
            if self._standing_by:
                self._standing_by, self._takeovers = False, self._takeovers + 1
                _log.warning("takes over")
            self._ready(self.name, True)
            pause = POLL_SECONDS
            while not self._stop.is_set():
                began = time.monotonic()
                turn = relay.turn()
                self._answer()
                if turn is Turn.IDLE:
                    self._rest(relay, max(pause, (time.monotonic() - began) / LOOK_SHARE))
                    pause = min(2 * pause, POLL_SECONDS_MAX)
                else:
                    pause = POLL_SECONDS
                    if turn is Turn.SOME:
                        self._rest(relay, pause)
        finally:
            self._end(client)

    def _end(self, client: OpenedClient) -> None:
        """Close the client, and keep its numbers."""
        relay, self._relay = self._relay, None
        if relay is not None:
            self._taken, self._refused = self._taken + relay.taken, self._refused + relay.refused
            with suppress(PubsubError):
                self._sent += relay.sent
        try:
            client.close()
        except PubsubError as error:
            _log.warning("%s", error)

    def _rest(self, relay: Relay, seconds: float) -> None:
        """Let answers in for some time, or until a full topic has room."""
        session = relay.session
        chains = [session.core.outbox.chains[topic] for topic in (relay.pressure.full if relay.pressure.waits else [])]

        def done() -> bool:
            return self._stop.is_set() or session.over or any(has_room(chain) for chain in chains)

        session.wait(done, session.now + seconds)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
            self._answer()
            self._stop.wait(min(left, POLL_SECONDS_MAX))

    # Metrics

    def _answer(self) -> None:
        if self._handover is not None and self._handover.wanted:
            self._handover.give(self.snapshot())

    def snapshot(self) -> Snapshot:
        """Return the metrics."""
        relay, unready = self._relay, ""
        rows, age, aside = 0, 0.0, 0
        taken, sent, refused, unfinished, slow = self._taken, self._sent, self._refused, 0, 0
        try:
            rows, age, aside = self._watch.behind()
            if relay is not None:
                unfinished, slow = relay.unfinished(), len(relay.pressure.slow)
                taken, sent, refused = taken + relay.taken, sent + relay.sent, refused + relay.refused
        except PubsubError as error:
            unready = str(error)
        counters = {"rows_taken": taken, "messages_sent": sent, "rows_refused": refused, "takeovers": self._takeovers}
        gauges = (
            Gauge("active", "Whether it sends; 0: it stands by.", float(relay is not None)),
            Gauge("rows_waiting", "Outgoing rows that wait, counted up to 100,000.", rows),
            Gauge("oldest_row_seconds", "Age of the oldest outgoing row.", age),
            Gauge("rows_set_aside", "Rows in pubsub.refused, counted up to 100,000.", aside),
            Gauge("messages_unfinished", "Messages in its outbox.", unfinished),
            Gauge("topics_slow", "Topics whose rows stay in the table because their messages cannot be sent.", slow),
        )
        return Snapshot("relay", self.name, unready, counters, gauges)
