"""Other servers that hold our topics too, as proxies reported: stored until each is merged or abandoned.

A proxy may lose its routes file, and with it the memory of a holder that is away. So a server stores each other holder
that a proxy reports. This server is not the sole owner of the topic until the other log is merged into this one, or an
operator abandons it. Later answers of proxies do not change that. Holders are distinguished by their open logs. The IDs
of merged logs travel with a topic, so a log that came by way of a third server settles the matter too.

A stored holder may no longer exist. It may have been abandoned while this server was away. Or this store was restored
from a copy, and the other log has been merged since. So the server drops another holder if these conditions are met:

* Every proxy answers a question of sole ownership with "no other holder".
* Every store that the proxies know has announced all its topics since this server noted the other holder. The times
  compare by timestamps, less the bound on skew.
* The other holder's server is in this server's own store directory. Then proxies know its store, or wait for it, even
  after a loss of memory.
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
"""Most stored other holders of one topic, far more than there can be servers."""


class Contested:
    """The topics of one server that other servers hold too.

    Args:
        stores: the other stores that the server knows.
    """

    def __init__(self, state: State, stores: Stores) -> None:
        self._state, self._stores = state, stores
        self._started = state.stamps.reading(state.started)
        self._recorded_at: dict[str, int] = {}
        """The timestamp at which this process last noted another holder, by topic."""

    def told(self, name: str, holders: str) -> list[tuple[str, str]]:
        """Process a proxy's list of other holders of a topic, as `server.log`, separated by commas.

        Returns:
            (server, log) of each readable entry, if the topic is held here.
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
        """Record another holder of a topic, unless its log is merged already or was abandoned."""
        if log in topic.contested or log in topic.logs or log in topic.merged or len(topic.contested) >= CONTESTED_MAX:
            return
        if server == self._state.settings.id and self._state.accepted:
            return  # An operator declared this restored store complete, so its lost records are gone.
        if not self._state.reader.log_state(log).new:  # The log was abandoned, or is one of ours.
            return
        self._state.contest(topic, log, server)

    def unclaimed(self, name: str, since: int) -> None:
        """Drop the other holders of a topic after all proxies answered that there are none.

        Args:
            since: the timestamp since which every store that the proxies know has announced all its topics; 0: not all
                have.
        """
        topic = self._state.topics.get(name)
        if topic is None or not topic.contested or name in self._state.newly_contested:
            return
        skew = int(self._state.settings.skew_seconds * MICROSECONDS)
        if since <= self._recorded_at.get(name, self._started) + skew:
            return
        gone = [log for log, server in topic.contested.items() if self._stores.serves(server)]
        self.settle(topic, *gone)
        self._state.counters["contested_holders_gone"] += len(gone)

    def settle(self, topic: Topic, *logs: str) -> None:
        """Record that these logs are merged or abandoned."""
        for log in logs:
            topic.settle(log)

    def committed(self, now: float) -> None:
        """Process the commit of newly noted holders."""
        fresh = self._state.newly_contested
        if fresh:
            self._recorded_at |= dict.fromkeys(fresh, self._state.stamps.reading(now))
            held = self._state.is_contested
            self._recorded_at = {name: stamp for name, stamp in self._recorded_at.items() if held(name)}
            fresh.clear()

    def merged(self, topic: Topic, contested: Iterable[tuple[str, str]]) -> None:
        """Add the other holders (log, server) known to a topic that was just merged into this one."""
        for log, server in contested:
            self.add(topic, log, server)
        self.settle(topic, *[log for log in topic.contested if log in topic.logs or log in topic.merged])
