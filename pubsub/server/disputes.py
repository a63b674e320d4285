"""Which other servers hold a topic of ours, as proxies have told: kept until each is joined, or given up.

A proxy may lose its routes file, and with it the memory of a holder that is away. So a server that was once told of
another one stores that, and the topic is not whole until the other's log is joined into this one, or an operator gave
it up, whatever proxies say meanwhile. Holders are told apart by their open logs: a log that was joined travels along as
absorbed, so one that went by way of a third server settles the matter too.

A holder that was remembered may be nobody's any more: it was given up while this server was away, or this store was put
back and remembers one that was joined since. So the server finds out by asking: where a question whether the topic is
whole is answered by every proxy with "no other holder", and every store that they know has said all it holds since this
server noted the other holder (by stamps, less the bound on skew), nobody holds it. The other holder's server must be in
this server's own roster: then proxies know its store, or wait for it, even those that have lost their memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pubsub.clock import MICROSECONDS
from pubsub.protocol.names import is_hex, parse_holder
from pubsub.server import changes as c
from pubsub.server.topic import Topic

if TYPE_CHECKING:
    from pubsub.server.core import ServerCore

RIVALS_MAX: Final = 1_000
"""Other holders of one topic that are remembered: far more than there can be servers."""


class Disputes:
    """The topics of one server that others hold too.

    Args:
        core: the server.
    """

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._started = core.stamps.reading(core.started)
        self._noted: dict[str, int] = {}
        """When (a stamp) another holder of a topic was noted last, in this life."""
        self._fresh: set[str] = set()
        """Topics of which one was noted in this loop."""

    def told(self, name: str, value: str, proxy: int, now: float) -> None:
        """What a proxy says of a topic: holders as `server.log`, separated by commas; or a log of ours given up.

        Args:
            proxy: which one, as in `Origin.link`.
        """
        topic = self._core.topics.get(name)
        if topic is None or not value:
            return
        if is_hex(value):
            self._core.given_up.announced(name, value, now)
            return
        for word in value.split(","):
            try:
                server, log = parse_holder(word)
            except ValueError:
                self._core.counters["answers not understood"] += 1
            else:
                self.add(topic, log, server)
                self._core.given_up.named(topic, log, server, proxy, now)

    def add(self, topic: Topic, log: str, server: str) -> None:
        """Another server holds a topic too, unless its log is joined already, or was given up."""
        if log in topic.rivals or log in topic.logs or log in topic.absorbed or len(topic.rivals) >= RIVALS_MAX:
            return
        if server == self._core.settings.id and self._core.quarantine.accepted:
            return  # What the copy of this store lacks is gone: nobody will come with it.
        if self._core.reader.log_state(log) not in {"", "incoming"}:  # It was given up, or is ours.
            return
        self.note(topic, log, server)

    def note(self, topic: Topic, log: str, server: str) -> None:
        """Remember another holder."""
        topic.rivals[log] = server
        self._fresh.add(topic.name)
        self._core.marks.touched.add(topic.name)
        self._core.marks.rows.append(c.RivalTold(topic.number, log, server))

    def unclaimed(self, name: str, since: int) -> None:
        """No proxy knows another holder of a topic.

        Args:
            since: the stamp since which every store that they know has said all it holds; 0: not all have.
        """
        topic = self._core.topics.get(name)
        if topic is None or not topic.rivals or name in self._fresh:
            return
        skew = int(self._core.settings.skew_seconds * MICROSECONDS)
        if since <= self._noted.get(name, self._started) + skew:
            return
        gone = [log for log, server in topic.rivals.items() if self._core.stores.serves(server)]
        self.settle(topic, *gone)
        self._core.counters["other holders found gone"] += len(gone)

    def settle(self, topic: Topic, *logs: str) -> None:
        """These logs are joined, or given up."""
        for log in logs:
            if topic.rivals.pop(log, None) is not None:
                self._core.marks.touched.add(topic.name)
                self._core.marks.rows.append(c.RivalGone(topic.number, log))

    def committed(self, now: float) -> None:
        """What was noted is durable."""
        if self._fresh:
            self._noted |= dict.fromkeys(self._fresh, self._core.stamps.reading(now))
            self._noted = {name: stamp for name, stamp in self._noted.items() if self.is_open(name)}
            self._fresh.clear()

    def joined(self, topic: Topic, rivals: Iterable[tuple[str, str]]) -> None:
        """A topic was joined into this one, which knew of these other holders (log, server)."""
        for log, server in rivals:
            self.add(topic, log, server)
        self.settle(topic, *[log for log in topic.rivals if log in topic.logs or log in topic.absorbed])

    def is_open(self, name: str) -> bool:
        """Whether another server may hold some of a topic."""
        topic = self._core.topics.get(name)
        return topic is not None and bool(topic.rivals)
