"""Which other servers hold a topic of ours, as proxies have told: kept until each is merged, or given up.

A proxy may lose its routes file, and with it the memory of a holder that is away. So a server that was once told of
another one stores that, and the topic is not whole until the other's log is merged into this one, or an operator gave
it up, whatever proxies say meanwhile. Holders are told apart by their open logs: a log that was merged travels along as
merged, so one that went by way of a third server settles the matter too.

A holder that was remembered may be nobody's any more: it was given up while this server was away, or this store was put
back and remembers one that was merged since. So the server finds out by asking: where a question whether the topic is
whole is answered by every proxy with "no other holder", and every store that they know has said all it holds since this
server noted the other holder (by stamps, less the bound on skew), nobody holds it. The other holder's server must be in
this server's own roster: then proxies know its store, or wait for it, even those that have lost their memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.protocol.names import parse_holder
from pubsub.server.ownership.stores import Stores
from pubsub.server.state.state import State
from pubsub.server.topic.topic import Topic

CONTESTED_MAX: Final = 1_000
"""Other holders of one topic that are remembered: far more than there can be servers."""


class Contested:
    """The topics of one server that others hold too.

    Args:
        state: the server's.
        stores: the other stores that it knows.
    """

    def __init__(self, state: State, stores: Stores) -> None:
        self._state, self._stores = state, stores
        self._started = state.stamps.reading(state.started)
        self._noted: dict[str, int] = {}
        """When (a stamp) another holder of a topic was noted last, in this life."""

    def told(self, name: str, holders: str) -> list[tuple[str, str]]:
        """A proxy names other holders of a topic, as `server.log`, separated by commas.

        Returns:
            (server, log) of each that could be read, where the topic is held here.
        """
        topic = self._state.topics.get(name)
        if topic is None or not holders:
            return []
        named = []
        for word in holders.split(","):
            try:
                server, log = parse_holder(word)
            except ValueError:
                self._state.counters["answers_not_understood"] += 1
            else:
                self.add(topic, log, server)
                named.append((server, log))
        return named

    def add(self, topic: Topic, log: str, server: str) -> None:
        """Another server holds a topic too, unless its log is merged already, or was given up."""
        if log in topic.contested or log in topic.logs or log in topic.merged or len(topic.contested) >= CONTESTED_MAX:
            return
        if server == self._state.settings.id and self._state.accepted:
            return  # An operator said that the part which this restored store lacks is gone.
        if not self._state.reader.log_state(log).new:  # The log was given up, or is one of ours.
            return
        self._state.contest(topic, log, server)

    def unclaimed(self, name: str, since: int) -> None:
        """No proxy knows another holder of a topic.

        Args:
            since: the stamp since which every store that they know has said all it holds; 0: not all have.
        """
        topic = self._state.topics.get(name)
        if topic is None or not topic.contested or name in self._state.newly_contested:
            return
        skew = int(self._state.settings.skew_seconds * MICROSECONDS)
        if since <= self._noted.get(name, self._started) + skew:
            return
        gone = [log for log, server in topic.contested.items() if self._stores.serves(server)]
        self.settle(topic, *gone)
        self._state.counters["contested_holders_gone"] += len(gone)

    def settle(self, topic: Topic, *logs: str) -> None:
        """These logs are merged, or given up."""
        for log in logs:
            topic.settle(log)

    def committed(self, now: float) -> None:
        """What was noted is durable."""
        fresh = self._state.newly_contested
        if fresh:
            self._noted |= dict.fromkeys(fresh, self._state.stamps.reading(now))
            self._noted = {name: stamp for name, stamp in self._noted.items() if self._state.is_contested(name)}
            fresh.clear()

    def merged(self, topic: Topic, contested: Iterable[tuple[str, str]]) -> None:
        """A topic was merged into this one, which knew of these other holders (log, server)."""
        for log, server in contested:
            self.add(topic, log, server)
        self.settle(topic, *[log for log in topic.contested if log in topic.logs or log in topic.merged])
