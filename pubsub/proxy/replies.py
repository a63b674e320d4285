"""What a proxy sends of its own: answers to clients and servers, heartbeats, and requests that took the long way.

Nothing here is sent before the changes of the routes that stand beside it are on the disk; the shell sees to that.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from pubsub.base.clock import Stamps
from pubsub.errors import DecodeError
from pubsub.messenger.framing import PREFIX_LENGTH_MAX, Prefix, pack, unpack
from pubsub.protocol import Heartbeat, Merge, Message, Operate, Outcome, Report, Status, encode
from pubsub.protocol.batch import Buffer
from pubsub.protocol.register import Vote
from pubsub.proxy.in_flight import LARGE_BYTES
from pubsub.proxy.remembered import AbandonedLog
from pubsub.proxy.server import Server

ORIGIN_MARK: Final = b"c"
"""First byte of an origin frame that names a client; the proxy's own conversation has an empty one."""


class Send(NamedTuple):
    """A message to send.

    Attributes:
        to_server: on the servers' side; else on the clients'.
        link: the routing ID of whom it is for.
        frames: what follows the routing ID.
    """

    to_server: bool
    link: bytes
    frames: tuple[Buffer, ...]


class Replies:
    """Messages to send.

    Args:
        proxy: the ID under which they are sent.
        stamps: the highest stamp heard of travels with each message to a server.

    Attributes:
        sends: in the order in which they are to be sent; whoever sends them takes them out with `take`.
        counters: how often what happened.
        suspended: why nothing can be remembered at present, "" while it can.
    """

    def __init__(self, proxy: str, stamps: Stamps) -> None:
        self.sends: list[Send] = []
        self.counters: Counter[str] = Counter()
        self.suspended = ""
        self._proxy, self._stamps = proxy, stamps

    def take(self) -> list[Send]:
        """The messages to send now."""
        sends, self.sends = self.sends, []
        return sends

    def forward(self, server: Server, client: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """Pass a client's request on to a server that is connected, if there is room for it on the way."""
        assert server.link is not None
        size = len(frames[1]) if len(frames) > 1 else 0
        large = size > LARGE_BYTES
        if large and not server.in_flight.has_room(client, size):
            self.crowded(server, client, frames[0])
            return
        server.liveness.sent(now)
        self.sends.append(Send(True, server.link, (ORIGIN_MARK + client, *frames)))
        if large and server.in_flight.add(client, size):
            self.beat(server, now)

    def crowded(self, server: Server, client: bytes, head: Buffer) -> None:
        """Answer a request for which there is no room on the way."""
        self.counters["busy_too_many_bytes_under_way"] += 1
        try:
            prefix = unpack(bytes(head[:PREFIX_LENGTH_MAX]))
        except DecodeError:
            self.counters["malformed"] += 1
            return
        self.answer(client, prefix, Outcome.BUSY, f"the_queue_to_server_{server.id}_is_full", server.id)

    def refuse(self, client: bytes, prefix: Prefix, reason: str) -> None:
        """Answer a client whose bytes cannot be served, and count it."""
        self.counters["refused"] += 1
        self.answer(client, prefix, Outcome.REFUSED, reason)

    def answer(
        self, client: bytes, prefix: Prefix, outcome: Outcome, reason: str = "", server: str = "", body: bytes = b""
    ) -> None:
        """Answer a client; one that registered no callback for the answer gets none."""
        self.counters[f"answered_{outcome.value}"] += 1
        if prefix.source:
            status = Status(self._proxy, outcome, reason=_words(reason), server=server, body=body)
            self.sends.append(Send(False, client, self._frames(prefix.source, status)))

    def tell(
        self,
        link: bytes,
        prefix: Prefix,
        outcome: Outcome,
        reason: str = "",
        *,
        change: int = 0,
        body: bytes = b"",
        lacked: tuple[str, str] = ("", ""),
        since: int = 0,
        term: int = 0,
    ) -> None:
        """Answer a server. Where its message named no callback the answer names none either: its outcome says all."""
        if self.suspended and outcome in {Outcome.SUCCESS, Outcome.FULL}:  # Either says what is on the disk.
            outcome, reason, body, lacked = Outcome.UNAVAILABLE, self.suspended, b"", ("", "")
        status = Status(self._proxy, outcome, reason=_words(reason), change=change, stamp=self._stamps.last, body=body)
        (status.stores, status.gone), status.since, status.term = lacked, since, term
        self._to_server(link, prefix.source, status)

    def vote(self, link: bytes, prefix: Prefix, vote: Vote) -> None:
        """Answer a member that asked about its store's register."""
        self._to_server(link, prefix.source, vote)

    def beat(self, server: Server, now: float, *, leaving: int = 0, answered: bool = False) -> None:
        """A heartbeat to a connected server, and a mark where something is on its way.

        Args:
            leaving: 1: the last one.
            answered: the server is to answer at once, also where there is nothing to mark.
        """
        assert server.link is not None
        server.liveness.sent(now)
        heartbeat = Heartbeat(self._proxy, self._stamps.last, leaving)
        self._to_server(server.link, 0, heartbeat, source=server.in_flight.mark() or int(answered))

    def ask_report(self, server: Server, callback: int, now: float) -> None:
        """Have a connected server tell of itself; its answer names the callback."""
        assert server.link is not None
        server.liveness.sent(now)
        self._to_server(server.link, 0, Report(self._proxy, server.id), source=callback)

    def merge(self, giver: Server, topic: str, receiver: Server, now: float) -> None:
        """Have one of two holders give the topic to the other."""
        assert giver.link is not None
        giver.liveness.sent(now)
        self.counters["merges_asked"] += 1
        message = Merge(self._proxy, topic, receiver.address, receiver.topics[topic])
        self._to_server(giver.link, 0, message)

    def abandoned(self, server: Server, lost: AbandonedLog) -> None:
        """Tell a holder of a topic that another one was abandoned."""
        assert server.link is not None
        message = Operate(
            self._proxy, server.id, "abandoned", lost.topic, lost.server, lost.address, log=lost.log, store=lost.store
        )
        self._to_server(server.link, 0, message)

    def _to_server(self, link: bytes, destination: int, message: Message, source: int = 0) -> None:
        self.sends.append(Send(True, link, (b"", *self._frames(destination, message, source))))

    def _frames(self, destination: int, message: Message, source: int = 0) -> tuple[Buffer, ...]:
        header, body = encode(message)
        head = pack(0, source, destination) + header
        return (head, body) if len(body) else (head,)


def _words(reason: str) -> str:
    """A reason as one word of printable ASCII."""
    return "".join(mark if "!" <= mark <= "~" else "_" for mark in reason[:300])
