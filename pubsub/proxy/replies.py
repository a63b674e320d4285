"""Messages that a proxy sends itself: answers to clients and servers, heartbeats, and requests that the core forwards.

The shell sends none of them before the route changes of the same turn are on the disk.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

from pubsub.base.clock import Stamps
from pubsub.errors import DecodeError
from pubsub.messenger.framing import PREFIX_LENGTH_MAX, Prefix, pack, unpack
from pubsub.protocol import Heartbeat, Merge, Message, Operate, Outcome, Report, Status, decode, encode
from pubsub.protocol.batch import Buffer
from pubsub.protocol.deletion_table import Deletion
from pubsub.protocol.deletions import Deleted
from pubsub.protocol.families import Patterns
from pubsub.protocol.pattern_table import PatternRow
from pubsub.protocol.register import Vote
from pubsub.proxy.in_flight import LARGE_BYTES
from pubsub.proxy.remembered import AbandonedLog
from pubsub.proxy.server import Server

ORIGIN_MARK: Final = b"c"
"""First byte of an origin frame that names a client. The origin of the proxy's own messages is empty."""


class Send(NamedTuple):
    """A message to send.

    Attributes:
        to_server: True for the socket of the servers, False for that of the clients.
        link: the routing ID of the receiver.
        frames: the frames that follow the routing ID.
    """

    to_server: bool
    link: bytes
    frames: tuple[Buffer, ...]


class Replies:
    """The queue of messages to send.

    Args:
        proxy: the ID of the sender.
        stamps: the highest timestamp seen, which travels with each message to a server.

    Attributes:
        sends: the queue, in order; `take` empties it.
        suspended: why nothing can be remembered at present, "" if it can.
    """

    def __init__(self, proxy: str, stamps: Stamps) -> None:
        self.sends: list[Send] = []
        self.counters: Counter[str] = Counter()
        self.suspended = ""
        self._proxy, self._stamps = proxy, stamps

    def take(self) -> list[Send]:
        """Empty the queue and return the messages."""
        sends, self.sends = self.sends, []
        return sends

    def forward(self, server: Server, client: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """Forward a client's request to a connected server, or answer it as busy if too many bytes are in flight."""
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
        """Answer a request as busy, because too many bytes are in flight to the server."""
        self.counters["busy_too_many_bytes_under_way"] += 1
        try:
            prefix = unpack(bytes(head[:PREFIX_LENGTH_MAX]))
        except DecodeError:
            self.counters["malformed"] += 1
            return
        self.answer(client, prefix, Outcome.BUSY, f"the_queue_to_server_{server.id}_is_full", server.id)

    def read(self, client: bytes, prefix: Prefix, frames: tuple[Buffer, ...]) -> Message | None:
        """Return a request that this proxy handles itself; None if it is answered: while suspended, or as malformed.

        Args:
            frames: head and body.
        """
        if self.suspended:
            self.answer(client, prefix, Outcome.UNAVAILABLE, self.suspended)
            return None
        try:
            return decode(bytes(frames[0])[prefix.length :], frames[1] if len(frames) > 1 else b"")
        except DecodeError as error:
            self.refuse(client, prefix, error.reason)
            return None

    def refuse(self, client: bytes, prefix: Prefix, reason: str) -> None:
        """Answer a request that is malformed or not allowed here, and count it."""
        self.counters["refused"] += 1
        self.answer(client, prefix, Outcome.REFUSED, reason)

    def answer(
        self,
        client: bytes,
        prefix: Prefix,
        outcome: Outcome,
        reason: str = "",
        server: str = "",
        body: bytes = b"",
        **facts: Any,
    ) -> None:
        """Answer a client, unless it registered no callback for the answer.

        Args:
            facts: further numbers of the STATUS.
        """
        self.counters[f"answered_{outcome.value}"] += 1
        if prefix.source:
            status = Status(self._proxy, outcome, reason=_words(reason), server=server, body=body, **facts)
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
        patterns: str = "",
        defaults: str = "",
        clock: int = 0,
    ) -> None:
        """Answer a server.

        If its message named no callback, the answer names none either, and the server recognizes it by its outcome.
        """
        # SUCCESS and FULL state that a change is on the disk.
        if self.suspended and outcome in {Outcome.SUCCESS, Outcome.FULL}:
            outcome, reason, body, lacked = Outcome.UNAVAILABLE, self.suspended, b"", ("", "")
        status = Status(self._proxy, outcome, reason=_words(reason), change=change, stamp=self._stamps.last, body=body)
        (status.stores, status.gone), status.since, status.term = lacked, since, term
        status.patterns = patterns
        status.defaults, status.clock = defaults, clock
        self._to_server(link, prefix.source, status)

    def vote(self, link: bytes, prefix: Prefix, vote: Vote) -> None:
        """Answer a member's question about the register of its store."""
        self._to_server(link, prefix.source, vote)

    def patterns(self, server: Server, digest: str, rows: tuple[PatternRow, ...]) -> None:
        """Tell a connected server patterns, and the digest of all that are known."""
        assert server.link is not None
        self._to_server(server.link, 0, Patterns(self._proxy, digest, rows))

    def deletions(self, server: Server, digest: str, rows: tuple[Deletion, ...]) -> None:
        """Tell a connected server deleted names, and the digest of all that are known."""
        assert server.link is not None
        self._to_server(server.link, 0, Deleted(self._proxy, digest, rows))

    def beat(self, server: Server, now: float, *, leaving: int = 0, answered: bool = False) -> None:
        """Send a heartbeat to a connected server, with a mark if large bodies are in flight to it.

        Args:
            leaving: 1 for the last heartbeat.
            answered: ask the server to answer at once, even if there is no mark.
        """
        assert server.link is not None
        server.liveness.sent(now)
        heartbeat = Heartbeat(self._proxy, self._stamps.last, leaving)
        self._to_server(server.link, 0, heartbeat, source=server.in_flight.mark() or int(answered))

    def ask_report(self, server: Server, callback: int, now: float) -> None:
        """Ask a connected server for its report; the answer names the callback."""
        assert server.link is not None
        server.liveness.sent(now)
        self._to_server(server.link, 0, Report(self._proxy, server.id), source=callback)

    def merge(self, giver: Server, topic: str, receiver: Server, now: float) -> None:
        """Ask one of two holders to give the topic to the other."""
        assert giver.link is not None
        giver.liveness.sent(now)
        self.counters["merges_asked"] += 1
        message = Merge(self._proxy, topic, receiver.address, receiver.topics[topic])
        self._to_server(giver.link, 0, message)

    def abandoned(self, server: Server, lost: AbandonedLog) -> None:
        """Tell a holder of a topic that another holder's log was abandoned."""
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
    """Return a reason as one word of printable ASCII, at most 300 characters."""
    return "".join(mark if "!" <= mark <= "~" else "_" for mark in reason[:300])
