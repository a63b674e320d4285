"""A server's links to its proxies: heartbeats, announcements, questions.

See docs/explanation/ownership.md, *Announcements*, O7 and O11.

Each proxy gets a complete announcement on connect and every few seconds, and each change at once. Announcements are
ordered by (incarnation, change). If a proxy is silent for long, the server opens a new socket, with back-off. The
proxy's side of the old connection may be half open. If a proxy answers that our ID or store is taken, the server asks
again. It gives up when an earlier process of that ID would have been declared dead by now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pubsub.base.clock import MICROSECONDS, Stamps
from pubsub.base.liveness import Liveness
from pubsub.config.settings import ServerSettings
from pubsub.protocol.deletion_table import Deletion
from pubsub.protocol.deletions import Deleted
from pubsub.protocol.families import Patterns
from pubsub.protocol.messages import Heartbeat, Message, Operate, Outcome, Periodic, Status
from pubsub.protocol.pattern_table import PatternRow
from pubsub.protocol.topic_defaults import digest, parse_default
from pubsub.protocol.transfers import Owners
from pubsub.server.state.replies import Outgoing

RECONNECT_SECONDS_MAX: Final = 30.0
GIVEN_MAX: Final = 10_000
"""Most given topics remembered until every proxy has confirmed them."""

TAKEN_PATIENCES: Final = 3
"""Liveness periods for which a server waits for its ID to become free."""


READY_SECONDS: Final = 1.0
"""A server without an answer reports itself ready after this time, because proxies may start later."""


def quorums(proxies: int) -> tuple[int, int]:
    """Return how many proxies must confirm a holder before it answers, and how many must know of no other holder.

    Any set of the first size and any set of the second size have a proxy in common.

    Args:
        proxies: the number of all proxies.
    """
    return (proxies + 1) // 2, proxies // 2 + 1


@dataclass(slots=True)
class Proxy:
    """One proxy, as this server sees it.

    Attributes:
        durable: the highest change of ours that the proxy has confirmed to this process. The proxy has that change on
            its disk. Or it had no room for all our topics, and therefore answers no question of sole ownership.
        clock: the proxy's clock less our monotonic one, in seconds, as last told; None: not told yet.
        given: topics given to other servers, in the form of the announcement, with our change number. Kept until the
            proxy has confirmed them.
    """

    liveness: Liveness
    announce_at: float
    reconnect_at: float
    backoff: float
    announced: int | None = None
    confirmed: int = -1
    durable: int = -1
    taken_since: float | None = None
    reason: str = ""
    clock: float | None = None
    given: dict[str, tuple[str, int]] = field(default_factory=dict)


class Proxies:
    """All proxies in the settings.

    Args:
        store_id, incarnation: of this process's store.
        stamps: the server's clock for timestamps.
        now: monotonic seconds.
    """

    def __init__(self, settings: ServerSettings, store_id: str, incarnation: int, stamps: Stamps, now: float) -> None:
        self._settings, self._store, self._incarnation, self._stamps = settings, store_id, incarnation, stamps
        self.address = settings.advertise or settings.bind
        self._began = now
        self._proxies = ",".join(sorted(settings.proxies))
        patience = settings.patience_seconds
        self.all = [
            Proxy(
                Liveness(settings.heartbeat_seconds, settings.liveness, now),
                announce_at=now,
                reconnect_at=now + patience * 2,
                backoff=patience * 2,
            )
            for _ in settings.proxies
        ]
        self.witnesses, self.majority = quorums(len(self.all))
        self.answered_once = False
        """True if some proxy has accepted an announcement of this process."""
        self.draining = False
        """True if this server gets no new topics."""
        self.member = ""
        """The ID of this member, if the store has a register."""
        self.defaults = digest(tuple(map(parse_default, settings.topic_defaults)))
        """The digest of this server's defaults of topics' settings."""
        self.store_directory = "", ""
        """The other known stores, and the removed stores, in the form of the announcement."""
        self.patterns = ""
        """The digest of the patterns that this server has stored."""
        self.deletions = ""
        """The digest of the deleted names that this server has stored."""
        self.out: list[Outgoing] = []
        self.reconnect: list[int] = []

    @property
    def durable_change(self) -> int:
        """The highest change of ours that enough proxies have confirmed to be witnesses."""
        return sorted([proxy.durable for proxy in self.all], reverse=True)[self.witnesses - 1]

    def ahead_seconds(self, now: float) -> float | None:
        """Return by how much our timestamps are ahead of the clocks of a majority of the proxies.

        An answer that took long makes the difference larger, never smaller.

        Returns:
            Seconds, negative if they are behind; None if too few proxies have told their clocks.
        """
        reading = self._stamps.reading(now) / MICROSECONDS
        ahead = sorted(reading - now - proxy.clock for proxy in self.all if proxy.clock is not None)
        return ahead[self.majority - 1] if len(ahead) >= self.majority else None

    def trusts_ages(self, now: float) -> bool:
        """Return True if a majority of the proxies shows that our timestamps are not ahead, so that ages count.

        The difference may be the largest one between two clocks, and the time of an answer.
        """
        ahead = self.ahead_seconds(now)
        return ahead is not None and ahead <= self._settings.skew_seconds + self._settings.patience_seconds

    def received(self, index: int | str, now: float) -> None:
        """Record a received message; only links to proxies are watched for silence."""
        if not isinstance(index, int) or index < 0:
            return
        proxy = self.all[index]
        proxy.liveness.received(now)
        proxy.backoff = self._settings.patience_seconds * 2
        proxy.reconnect_at = now + proxy.backoff

    def sent(self, index: int | str, now: float, *, waits: bool = True) -> None:
        """Record a sent message. `waits`: the message leaves only after a standby, if any, has confirmed."""
        if isinstance(index, int) and index >= 0 and not (waits and self.member):
            self.all[index].liveness.sent(now)

    def announce(self, changed: dict[str, str], change: int, now: float) -> None:
        """Announce a change of the topics held here to every proxy at once.

        Args:
            changed: topic to its value in `Periodic.topics`.
            change: the server's change number after it.
        """
        for topic, value in changed.items():
            self.remember(topic, value, change)
        for index, proxy in enumerate(self.all):
            if proxy.announced is not None:
                self._send(index, self._periodic(change, changed, now, previous=proxy.announced), now)
                proxy.announced = change

    def remember(self, topic: str, value: str, change: int) -> None:
        """Keep the receiver of a given topic until every proxy has confirmed it; any other value deletes the entry."""
        for proxy in self.all:
            proxy.given.pop(topic, None)
            if "." in value and len(proxy.given) < GIVEN_MAX:
                proxy.given[topic] = value, change

    def is_known_as_given(self, topic: str) -> bool:
        """Return True if every proxy has confirmed the receiver of a given topic."""
        return not any(topic in proxy.given for proxy in self.all)

    def may_take_for_holder(self, index: int | str, topic: str, left: int) -> bool:
        """Return True if the proxy on a link may still believe that this server holds a topic that has left it.

        Args:
            left: the change number at which a topic last left this server; a proxy that confirmed it knows that.
        """
        if not isinstance(index, int) or index < 0:
            return False
        proxy = self.all[index]
        return proxy.confirmed < left or topic in proxy.given

    def tick(self, holdings: dict[str, str], change: int, now: float) -> None:
        """Send due announcements and heartbeats, and request new sockets."""
        for index, proxy in enumerate(self.all):
            if now >= proxy.reconnect_at:
                proxy.backoff = min(proxy.backoff * 2, RECONNECT_SECONDS_MAX)
                proxy.reconnect_at = now + proxy.backoff
                self.reconnect.append(index)
                proxy.announce_at = now
            if now >= proxy.announce_at:
                proxy.announce_at = now + self._settings.announce_seconds
                proxy.announced = change
                # Until a proxy knows the receiver of a given topic, it must not believe that no server holds it.
                given = {topic: value for topic, (value, _) in proxy.given.items()}
                self._send(index, self._periodic(change, given | holdings, now), now)
            elif proxy.liveness.due(now):
                self._send(index, Heartbeat(self._settings.id, self._stamps.last), now)

    def answered(self, index: int, status: Status, now: float) -> None:
        """Process a proxy's answer to an announcement or a heartbeat."""
        proxy = self.all[index]
        proxy.reason = ""
        if status.outcome is Outcome.ANNOUNCE:
            proxy.announce_at = now
        elif status.outcome is Outcome.SUCCESS or (status.outcome is Outcome.FULL and status.change):
            # A proxy without room for all our topics has accepted this server too, and answers no question of sole
            # ownership meanwhile. A proxy without room for this server names no change.
            proxy.durable = max(proxy.durable, status.change)
            if status.clock:
                proxy.clock = status.clock / MICROSECONDS - now
            if status.outcome is Outcome.SUCCESS:  # The proxy also had room for the receivers of given topics.
                proxy.confirmed = max(proxy.confirmed, status.change)
                proxy.given = {topic: gift for topic, gift in proxy.given.items() if gift[1] > proxy.confirmed}
            self.answered_once = True
            proxy.taken_since = None
        elif status.outcome in {Outcome.TAKEN, Outcome.STALE}:
            proxy.reason = status.reason or str(status.outcome)
            proxy.taken_since = now if proxy.taken_since is None else proxy.taken_since
            proxy.announce_at = min(proxy.announce_at, now + self._settings.heartbeat_seconds)

    def is_ready(self, now: float) -> bool:
        """Return True if a proxy has accepted this server, or if none answered in time or objects."""
        return self.answered_once or (now - self._began >= READY_SECONDS and not self.refusal())

    def refusal(self) -> str:
        """Return the reason why a proxy does not accept this server yet; "" if none objects."""
        return next((proxy.reason for proxy in self.all if proxy.taken_since is not None), "")

    def taken(self, now: float) -> str:
        """Return the reason why this server cannot join with its ID and store; "" if it can.

        The server believes an objection that lasts longer than a dead process of the same ID would count as alive.
        """
        limit = self._settings.patience_seconds * TAKEN_PATIENCES
        for proxy in self.all:
            if proxy.taken_since is not None and now - proxy.taken_since >= limit:
                return proxy.reason
        return ""

    def connect_anew(self, now: float) -> None:
        """Request a new socket to every proxy, and a complete announcement."""
        self.reconnect[:] = range(len(self.all))
        self.announce_all(now)

    def announce_all(self, now: float, *, alive: bool = False) -> None:
        """Make a complete announcement to every proxy due now; `alive`: only to proxies that answer."""
        for proxy in self.all:
            if not alive or proxy.liveness.alive(now):
                proxy.announce_at = now

    def withdraw_announcements(self) -> None:
        """Drop the announcements of an undone loop; complete announcements follow at once."""
        for out in self.out:
            if isinstance(out.message, Periodic):
                self.all[int(out.link)].announce_at = float("-inf")
        self.out = [out for out in self.out if not isinstance(out.message, Periodic)]

    def ask_owners(self, topics: dict[str, str], token: int, now: float) -> list[int]:
        """Ask every proxy if another server holds any of these topics; return the indexes of the asked proxies."""
        for index in range(len(self.all)):
            self._send(index, Owners(self._settings.id, topics), now, source=token)
        return list(range(len(self.all)))

    def tell_patterns(self, index: int, digest: str, rows: tuple[PatternRow, ...], now: float) -> None:
        """Tell a proxy the digest of the patterns that are stored here, and the rows that it may lack."""
        self._send(index, Patterns(self._settings.id, digest, rows), now)

    def tell_deletions(self, index: int, digest: str, rows: tuple[Deletion, ...], now: float) -> None:
        """Tell a proxy the digest of the deleted names that are stored here, and the rows that it may lack."""
        self._send(index, Deleted(self._settings.id, digest, rows), now)

    def tell_abandoned(self, index: int, topic: str, server: str, log: str, now: float) -> None:
        """Tell a proxy that the log of a holder it named was abandoned."""
        told = Operate(self._settings.id, "-", "abandoned", topic=topic, server=server, log=log)
        self._send(index, told, now)

    def leave(self, now: float, *, empty: bool = False) -> None:
        """Announce the end of this process, so that proxies do not wait for its silence.

        Args:
            empty: this server is drained and holds no topic, so proxies need not wait for its store.
        """
        for index in range(len(self.all)):
            self._send(index, Heartbeat(self._settings.id, self._stamps.last, leaving=1, empty=int(empty)), now)

    def deadline(self) -> float:
        """Return the time at which `tick` has something to do (monotonic seconds)."""
        return min(min(proxy.announce_at, proxy.reconnect_at, proxy.liveness.deadline()) for proxy in self.all)

    def _periodic(self, change: int, topics: dict[str, str], now: float, previous: int | None = None) -> Periodic:
        return Periodic(
            self._settings.id,
            self._store,
            self._incarnation,
            change,
            self.address,
            self._proxies,
            self._stamps.last,
            0 if previous is None else 1,
            topics,
            previous or 0,
            int(self.draining),
            *(self.store_directory if previous is None else ("", "")),
            self._stamps.reading(now),
            self.member,
            self.patterns if previous is None else "",
            self.defaults if previous is None else "",
            self.deletions if previous is None else "",
        )

    def _send(self, index: int, message: Message, now: float, source: int = 0) -> None:
        waits = not isinstance(message, Heartbeat)
        self.sent(index, now, waits=waits)
        self.out.append(Outgoing(index, b"", 0, source, message, waits))
