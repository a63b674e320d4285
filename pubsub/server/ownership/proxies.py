"""A server's links to its proxies: heartbeats, announcements, questions (docs/architecture.md, *Ownership*).

Each proxy is told everything on connect and every few seconds, and at once what changed. Announcements are ordered by
(incarnation, change). A proxy that is silent for long gets a new socket, with back-off: its side of the old one may be
half open. A proxy that says our ID or store is taken is asked again until it is not, or until waiting longer makes no
sense.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pubsub.base.clock import Stamps
from pubsub.base.liveness import Liveness
from pubsub.config.settings import ServerSettings
from pubsub.protocol.messages import Heartbeat, Message, Operate, Outcome, Periodic, Status, Whole
from pubsub.server.state.replies import Outgoing

RECONNECT_SECONDS_MAX: Final = 30.0
GIVEN_MAX: Final = 10_000
"""Topics that were given away, and of which some proxy has not confirmed to have heard, that are remembered."""

TAKEN_PATIENCES: Final = 3
"""Livenesses for which a server waits for its ID to be free before it gives up."""


READY_SECONDS: Final = 1.0
"""A server that no proxy has answered for so long says that it is ready all the same: proxies may be started later."""


def quorums(proxies: int) -> tuple[int, int]:
    """How many proxies must have heard of a holder before it answers, and how many must know of none.

    Any set of the one size and any set of the other have a proxy in common.

    Args:
        proxies: how many there are.
    """
    return (proxies + 1) // 2, proxies // 2 + 1


@dataclass(slots=True)
class Proxy:
    """One proxy, as this server sees it.

    Attributes:
        heard: the highest change of ours that the proxy has confirmed in this life: it has that on its disk, or that it
            has not all and calls nothing whole.
        given: topics that went to other servers, as they are announced, and our change number with it, until the proxy
            has confirmed that.
    """

    liveness: Liveness
    announce_at: float
    reconnect_at: float
    backoff: float
    announced: int | None = None
    confirmed: int = -1
    heard: int = -1
    taken_since: float | None = None
    reason: str = ""
    given: dict[str, tuple[str, int]] = field(default_factory=dict)


class Proxies:
    """All proxies of the configuration.

    Args:
        settings: the server's.
        store_id, incarnation: of this process's store.
        stamps: the server's clock for stamps.
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
        """Whether some proxy has taken over an announcement of this process."""
        self.draining = False
        """Whether this server is to be given no new topic."""
        self.member = ""
        """The ID of this member, where the store has a register."""
        self.roster = "", ""
        """The other stores that are known, and those that are gone, as they are announced."""
        self.out: list[Outgoing] = []
        self.reconnect: list[int] = []

    @property
    def heard_change(self) -> int:
        """The highest change of ours that as many proxies have confirmed as a holder needs for witnesses."""
        return sorted([proxy.heard for proxy in self.all], reverse=True)[self.witnesses - 1]

    def heard(self, index: int | str, now: float) -> None:
        """Something came over a link; those to proxies are watched."""
        if not isinstance(index, int) or index < 0:
            return
        proxy = self.all[index]
        proxy.liveness.heard(now)
        proxy.backoff = self._settings.patience_seconds * 2
        proxy.reconnect_at = now + proxy.backoff

    def sent(self, index: int | str, now: float, *, waits: bool = True) -> None:
        """Something goes over a link. `waits`: not before another member has it too, where there is one."""
        if isinstance(index, int) and index >= 0 and not (waits and self.member):
            self.all[index].liveness.sent(now)

    def announce(self, changed: dict[str, str], change: int, now: float) -> None:
        """Tell every proxy, at once, what this server came to hold or no longer holds.

        Args:
            changed: topic to what `Periodic.topics` has of it.
            change: the server's change number with it.
        """
        for topic, value in changed.items():
            self.remember(topic, value, change)
        for index, proxy in enumerate(self.all):
            if proxy.announced is not None:
                self._send(index, self._periodic(change, changed, now, previous=proxy.announced), now)
                proxy.announced = change

    def remember(self, topic: str, value: str, change: int) -> None:
        """Keep to whom a topic was given, until every proxy has confirmed to have heard; or forget that."""
        for proxy in self.all:
            proxy.given.pop(topic, None)
            if "." in value and len(proxy.given) < GIVEN_MAX:
                proxy.given[topic] = value, change

    def is_known_as_given(self, topic: str) -> bool:
        """Whether every proxy has heard to whom a topic was given."""
        return not any(topic in proxy.given for proxy in self.all)

    def may_take_for_holder(self, index: int | str, topic: str, left: int) -> bool:
        """Whether what comes over a link may be of a proxy that believes this server to hold a topic which it has not.

        Args:
            left: the change number with which a topic left this server last; who has confirmed it has heard so.
        """
        if not isinstance(index, int) or index < 0:
            return False
        proxy = self.all[index]
        return proxy.confirmed < left or topic in proxy.given

    def tick(self, holdings: dict[str, str], change: int, now: float) -> None:
        """What is due: full announcements, heartbeats, new sockets."""
        for index, proxy in enumerate(self.all):
            if now >= proxy.reconnect_at:
                proxy.backoff = min(proxy.backoff * 2, RECONNECT_SECONDS_MAX)
                proxy.reconnect_at = now + proxy.backoff
                self.reconnect.append(index)
                proxy.announce_at = now
            if now >= proxy.announce_at:
                proxy.announce_at = now + self._settings.announce_seconds
                proxy.announced = change
                # A proxy that has not heard to whom a topic was given must not believe that no server holds it.
                given = {topic: value for topic, (value, _) in proxy.given.items()}
                self._send(index, self._periodic(change, given | holdings, now), now)
            elif proxy.liveness.due(now):
                self._send(index, Heartbeat(self._settings.id, self._stamps.last), now)

    def answered(self, index: int, status: Status, now: float) -> None:
        """A proxy's answer to an announcement or a heartbeat."""
        proxy = self.all[index]
        proxy.reason = ""
        if status.outcome is Outcome.ANNOUNCE:
            proxy.announce_at = now
        elif status.outcome is Outcome.SUCCESS or (status.outcome is Outcome.FULL and status.change):
            # One that has no room for all our topics has taken us over too, and calls nothing whole meanwhile; one that
            # has none for us names no change.
            proxy.heard = max(proxy.heard, status.change)
            if status.outcome is Outcome.SUCCESS:  # To whom a topic was given has found room there as well.
                proxy.confirmed = max(proxy.confirmed, status.change)
                proxy.given = {topic: gift for topic, gift in proxy.given.items() if gift[1] > proxy.confirmed}
            self.answered_once = True
            proxy.taken_since = None
        elif status.outcome in {Outcome.TAKEN, Outcome.STALE}:
            proxy.reason = status.reason or str(status.outcome)
            proxy.taken_since = now if proxy.taken_since is None else proxy.taken_since
            proxy.announce_at = min(proxy.announce_at, now + self._settings.heartbeat_seconds)

    def is_ready(self, now: float) -> bool:
        """Whether a proxy has taken this server over, or none has answered; not where its ID is another one's."""
        return self.answered_once or (now - self._began >= READY_SECONDS and not self.refusal())

    def refusal(self) -> str:
        """Why a proxy does not take this server over yet; "" where none objects."""
        return next((proxy.reason for proxy in self.all if proxy.taken_since is not None), "")

    def taken(self, now: float) -> str:
        """Why this server cannot be what its configuration says, or "" where it can.

        A proxy that says so for longer than a dead namesake would count as alive is believed.
        """
        limit = self._settings.patience_seconds * TAKEN_PATIENCES
        for proxy in self.all:
            if proxy.taken_since is not None and now - proxy.taken_since >= limit:
                return proxy.reason
        return ""

    def connect_anew(self, now: float) -> None:
        """Give every proxy a new socket, and tell it everything."""
        self.reconnect[:] = range(len(self.all))
        self.announce_all(now)

    def announce_all(self, now: float, *, alive: bool = False) -> None:
        """Tell every proxy everything at once; `alive`: only those that are heard."""
        for proxy in self.all:
            if not alive or proxy.liveness.alive(now):
                proxy.announce_at = now

    def withdraw_announcements(self) -> None:
        """Do not send what was to be announced in this loop: it did not come to be. All is announced anew at once."""
        for out in self.out:
            if isinstance(out.message, Periodic):
                self.all[int(out.link)].announce_at = float("-inf")
        self.out = [out for out in self.out if not isinstance(out.message, Periodic)]

    def ask_whole(self, topics: dict[str, str], token: int, now: float) -> list[int]:
        """Ask every proxy whether another server holds any of these topics; who was asked."""
        for index in range(len(self.all)):
            self._send(index, Whole(self._settings.id, topics), now, source=token)
        return list(range(len(self.all)))

    def tell_abandoned(self, index: int, topic: str, server: str, log: str, now: float) -> None:
        """Tell a proxy that it takes a server for a holder whose log of the topic was given up."""
        told = Operate(self._settings.id, "-", "abandoned", topic=topic, server=server, log=log)
        self._send(index, told, now)

    def leave(self, now: float, *, empty: bool = False) -> None:
        """Say goodbye, so that nobody waits for our silence.

        Args:
            empty: this server is drained and holds nothing: nobody needs to wait for its store.
        """
        for index in range(len(self.all)):
            self._send(index, Heartbeat(self._settings.id, self._stamps.last, leaving=1, empty=int(empty)), now)

    def deadline(self) -> float:
        """When `tick` has something to do."""
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
            *(self.roster if previous is None else ("", "")),
            self._stamps.reading(now),
            self.member,
        )

    def _send(self, index: int, message: Message, now: float, source: int = 0) -> None:
        waits = not isinstance(message, Heartbeat)
        self.sent(index, now, waits=waits)
        self.out.append(Outgoing(index, b"", 0, source, message, waits))
