"""Which other servers hold a topic of ours, as proxies have told: kept until each is joined, or given up.

A proxy may lose its routes file, and with it the memory of a holder that is away. So a server that was once told of
another one stores that, and the topic is not whole until the other's log is joined into this one, or an operator gave
it up, whatever proxies say meanwhile. Holders are told apart by their open logs: a log that was joined travels along as
absorbed, so one that went by way of a third server settles the matter too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

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

    def told(self, name: str, value: str, now: float) -> None:
        """What a proxy says of a topic: holders as `server.log`, separated by commas; or a log of ours given up."""
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

    def add(self, topic: Topic, log: str, server: str) -> None:
        """Another server holds a topic too, unless its log is joined already, or was given up."""
        if log in topic.rivals or log in topic.logs or log in topic.absorbed or len(topic.rivals) >= RIVALS_MAX:
            return
        if server == self._core.settings.id and self._core.quarantine.accepted:
            return  # What the copy of this store lacks is gone: nobody will come with it.
        if self._core.reader.log_state(log) not in {"", "incoming"}:  # It was given up, or is ours.
            return
        topic.rivals[log] = server
        self._core.marks.touched.add(topic.name)
        self._core.marks.rows.append(c.RivalTold(topic.number, log, server))

    def settle(self, topic: Topic, *logs: str) -> None:
        """These logs are joined, or given up."""
        for log in logs:
            if topic.rivals.pop(log, None) is not None:
                self._core.marks.touched.add(topic.name)
                self._core.marks.rows.append(c.RivalGone(topic.number, log))

    def joined(self, topic: Topic, rivals: Iterable[tuple[str, str]]) -> None:
        """A topic was joined into this one, which knew of these other holders (log, server)."""
        for log, server in rivals:
            self.add(topic, log, server)
        self.settle(topic, *[log for log in topic.rivals if log in topic.logs or log in topic.absorbed])

    def is_open(self, name: str) -> bool:
        """Whether another server may hold some of a topic."""
        topic = self._core.topics.get(name)
        return topic is not None and bool(topic.rivals)
