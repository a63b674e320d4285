"""ProxyCore: all that a proxy decides, without a socket, a file or a clock of its own.

A proxy passes requests to the server that holds their topic, and the servers' answers back, and holds nothing per
request: on its way to a server a message carries the client's link in an envelope frame, the origin, and the server
sends it back in front of the answer. What it decides itself is little: where a topic is (`routing`), whose
announcements count (`admission`), who is still alive (`servers`), and what to say at once where nobody can serve a
request.

The shell asks `route` for the link of nearly every request. Everything else goes through `client_message` and
`server_message`, which put what is to be sent into `replies` and what is to be remembered into `table.changes`. The
rule between the two is the shell's to keep: what stands in `table.changes` is on the disk before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pubsub.base.clock import Stamps
from pubsub.config.addresses import reaches_out
from pubsub.config.settings import ProxySettings
from pubsub.errors import DecodeError
from pubsub.messenger.framing import PREFIX_LENGTH_MAX, Prefix, unpack
from pubsub.protocol import Operate, Outcome, Report, decode, request_route
from pubsub.protocol.batch import Buffer
from pubsub.proxy.members import Members
from pubsub.proxy.notices import Notices, Routine
from pubsub.proxy.operations import Operations
from pubsub.proxy.register import Registers
from pubsub.proxy.remembered import Remembered
from pubsub.proxy.replies import Replies, Send
from pubsub.proxy.report import Facts, build_report
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server
from pubsub.proxy.servers import HEAD_BYTES_MAX, STARTING, Servers

REQUESTS: Final = frozenset({"SUBSCRIBE", "UNSUBSCRIBE", "GET", "READ", "PUT", "STAGE", "PUBLISH"})
READS: Final = frozenset({"GET", "READ"})
"""Requests that make no topic."""

ANSWERS: Final = frozenset({"STATUS", "VOTE"})
"""To answer an answer would never end."""

REPORT_SECONDS: Final = 0.25
"""A report is made at most so often; whoever asks in between gets the last one."""

SENTENCE_BYTES_MAX: Final = 300
"""Of the sentence that tells a client why it has no right to something."""

NOBODY: Final = "no_server_is_heard"
DRAINING: Final = "every_server_is_draining"
WITNESS: Final = "this_proxy_is_a_witness"


class ProxyCore:
    """One proxy.

    Args:
        settings: its settings.
        now: the monotonic clock, in seconds; the start-up wait begins here.
        wall: seconds since 1970 at that moment.
        remembered: what the routes file holds.

    Attributes:
        table: who holds what, and the changes that are not written yet.
        replies: what is to be sent, in this order, after the changes are written.
        notices: lines for the log.
        counters: how often what happened.
        members: the conversation with members of stores that have a register.
        servers: the conversation with the servers.
        keys: gives what a report says of keys; None: the proxy has none.
        process: gives what the process uses of its machine.
        metrics: where metrics are told, as a URL; "" where they are not.
    """

    def __init__(self, settings: ProxySettings, now: float, wall: float, remembered: Remembered | None = None) -> None:
        self.settings = settings
        self.table = RoutingTable(settings.topics_max)
        held = remembered or Remembered()
        self.table.restore(held, settings.heartbeat_seconds, settings.liveness, now)
        # A witness keeps the table, since it has to say who else holds a topic, and passes nothing on by it.
        self._routes: Mapping[str, Server] = {} if settings.witness else self.table.single
        self.notices = Notices()
        stamps = Stamps(wall, now)
        self.replies = Replies(settings.id, stamps)
        self.counters = self.replies.counters
        registers = Registers(settings.id, held.identity, held.registers, self.table.changes, settings.patience_seconds)
        self.members = Members(self.table, registers, self.replies)
        self.servers = Servers(settings, self.table, self.replies, self.notices, stamps, self.members, now)
        self._operations = Operations(self.table, self.servers, self.replies, self.notices)
        self.keys: Callable[[], Mapping[str, Any]] | None = None
        self.process: Callable[[], Mapping[str, int]] = dict
        self.metrics = ""
        self._started = now
        self._report: tuple[float, bytes] = (float("-inf"), b"")

    @property
    def suspended(self) -> str:
        """Why nothing can be remembered at present, "" while it can; see `suspend`."""
        return self.replies.suspended

    @property
    def deadline(self) -> float:
        """When `tick` is to be called next."""
        return self.servers.presence.deadline

    def tick(self, now: float) -> None:
        """Do what is due; before what arrived meanwhile is handled."""
        self.servers.tick(now)

    def leave(self, now: float) -> None:
        """Say good-bye to the servers; the process ends."""
        self.servers.presence.leave(now)

    def route(self, head: bytes, now: float) -> bytes | None:
        """The link of the server that this request is for, in the usual case; None: ask `client_message`.

        Args:
            head: prefix and header of a message from a client.
            now: the monotonic clock, in seconds.
        """
        parts = head.split(b"-", 3)
        if len(parts) == 4 and len(head) <= HEAD_BYTES_MAX and not self.replies.suspended:
            route = request_route(parts[3])
            if route is not None and route[0] in REQUESTS:
                server = self._routes.get(route[2])
                if server is not None and server.liveness.alive(now):
                    server.liveness.sent(now)
                    return server.link
        return None

    def room_for(self, link: bytes, client: bytes, frames: tuple[Buffer, ...]) -> bool:
        """Whether a request with a large body, for which `route` gave `link`, may go there; if not, it is answered."""
        server = self.table.links[link]
        if server.in_flight.has_room(client, len(frames[1])):
            return True
        self.replies.crowded(server, client, frames[0])
        return False

    def went(self, link: bytes, client: bytes, size: int, now: float) -> None:
        """A large body has gone there."""
        server = self.table.links[link]
        if server.in_flight.add(client, size):
            self.replies.beat(server, now)

    def client_message(self, client: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """Handle any message from a client.

        Args:
            client: its link.
            frames: head and body; other numbers of frames are refused.
            now: the monotonic clock, in seconds.
        """
        head = bytes(frames[0][: HEAD_BYTES_MAX + 1])
        try:
            prefix = unpack(head)
        except DecodeError:
            self.counters["malformed"] += 1
            return
        if len(frames) > 2 or len(head) > HEAD_BYTES_MAX:
            self.replies.refuse(client, prefix, "too_many_frames_or_too_long_a_header")
            return
        route = request_route(head[prefix.length :])
        name = route[0] if route is not None else ""
        if name in REQUESTS:
            assert route is not None
            self._request(client, prefix, name, route[2], (head, *frames[1:]), now)
        elif name in {"REPORT", "OPERATE"}:
            self._asked_by_operator(client, prefix, (head, *frames[1:]), now)
        elif name in ANSWERS:
            self.counters["answers_of_clients_dropped"] += 1
        else:
            self.replies.refuse(client, prefix, "not_a_request_of_a_client")

    def _request(
        self, client: bytes, prefix: Prefix, name: str, topic: str, frames: tuple[Buffer, ...], now: float
    ) -> None:
        """Send a request on to whom it belongs, or say at once why that cannot be."""
        if closed := self.replies.suspended or (WITNESS if self.settings.witness else ""):
            self.replies.answer(client, prefix, Outcome.UNAVAILABLE, closed)
            return
        holders = self.table.holders(topic)
        if holders:
            log, avoid = _history(frames[0]) if len(holders) > 1 else ("", "")
            server = self.table.choose(topic, log, avoid, now)
            if server is None:
                self.replies.answer(client, prefix, Outcome.UNAVAILABLE, self._not_heard(holders[0]), holders[0].id)
            else:
                self.replies.forward(server, client, frames, now)
            return
        try:
            decode(bytes(frames[0])[prefix.length :], frames[1] if len(frames) > 1 else b"")
        except DecodeError as error:
            self.replies.refuse(client, prefix, error.reason)
            return
        if awaits := self.servers.roster.awaits():
            # A server that is still awaited may hold the topic.
            self.replies.answer(client, prefix, Outcome.UNAVAILABLE, awaits)
            return
        server = self.table.assignments.assigned(topic, now)
        if server is None or name not in READS:
            if now < self.servers.starts_at:
                self.replies.answer(client, prefix, Outcome.UNAVAILABLE, STARTING)
                return
            # A reader that names a log is told by a server that the topic is gone; any other makes no topic by reading.
            if name in READS and not _history(frames[0])[0]:
                self.replies.answer(client, prefix, Outcome.UNKNOWN, "no_server_holds_this_topic")
                return
            if not self.table.may_assign(topic):
                self.notices.say("full", f"no room for another topic: topics_max = {self.settings.topics_max}", now)
                self.replies.answer(client, prefix, Outcome.FULL, "topics_max_is_reached")
                return
            server = self.table.assign(topic, now)
        if server is None:
            self.replies.answer(client, prefix, Outcome.UNAVAILABLE, DRAINING if self.table.alive(now) else NOBODY)
            return
        self.replies.forward(server, client, frames, now)

    def _asked_by_operator(self, client: bytes, prefix: Prefix, frames: tuple[Buffer, ...], now: float) -> None:
        """REPORT or OPERATE: answered here, or passed on to the server that is its target."""
        try:
            asked = decode(bytes(frames[0])[prefix.length :], frames[1] if len(frames) > 1 else b"")
        except DecodeError as error:
            self.replies.refuse(client, prefix, error.reason)
            return
        assert isinstance(asked, Report | Operate)
        if asked.target == "-" and isinstance(asked, Operate):
            self._operations.handle(client, prefix, asked, now)
            return
        if asked.target == "-":
            self.servers.last_reports.look(self.table.alive(now), now, wanted=True)
            made, body = self._report
            if asked.topic:
                body = build_report(self.table, self._facts(now), now, asked.topic)
            elif not made <= now < made + REPORT_SECONDS:
                body = build_report(self.table, self._facts(now), now)
                self._report = now, body
            self.replies.answer(client, prefix, Outcome.SUCCESS, body=body)
            return
        server = self.table.named(asked.target)
        if server is not None and server.alive(now):
            self.replies.forward(server, client, frames, now)
        elif server is not None or any(known.id == asked.target for known in self.table.servers.values()):
            self.replies.answer(
                client, prefix, Outcome.UNAVAILABLE, f"server_{asked.target}_is_not_heard", asked.target
            )
        else:
            self.replies.answer(client, prefix, Outcome.UNKNOWN, f"server_{asked.target}_is_not_known")

    def startup_seconds_left(self, now: float) -> float:
        """How long it still assigns no topic."""
        return max(0.0, self.servers.starts_at - now)

    def _facts(self, now: float) -> Facts:
        addresses = (self.settings.bind, self.settings.servers or "")
        return Facts(
            proxy=self.settings.id,
            uptime_seconds=now - self._started,
            startup_seconds_left=self.startup_seconds_left(now),
            suspended=self.replies.suspended,
            counters=dict(self.counters),
            notices=[(now - said, text) for said, text in self.notices.recent],
            left_out=self.notices.left_out,
            registers=self.members.registers.rows,
            witness=self.settings.witness,
            keys=self.keys() if self.keys is not None else None,
            insecure=next(filter(reaches_out, addresses), "") if self.keys is None else "",
            process=self.process(),
            metrics=self.metrics,
            last_report=lambda server: self.servers.last_reports.of(server, now),
        )

    def _not_heard(self, server: Server) -> str:
        """Why a topic of this dead holder cannot be served, told apart from another server under its ID."""
        if self.table.named(server.id) in {None, server}:
            return f"server_{server.id}_is_not_heard"
        return f"server_{server.id}_with_store_{server.store}_is_not_heard"

    def turn_away(self, client: bytes, head: bytes, outcome: Outcome, reason: str, text: str = "") -> None:
        """Answer a request that is not to be served.

        Args:
            client: the link of who asked.
            head: prefix and header of the request.
            outcome: DENIED or REFUSED.
            reason: why, in a word.
            text: why, as a sentence for a person; no more than SENTENCE_BYTES_MAX of it are told.
        """
        try:
            prefix = unpack(head)
        except DecodeError:
            self.counters["malformed"] += 1
            return
        if outcome is Outcome.REFUSED:
            self.counters["refused"] += 1
        body = text.encode("utf-8")[:SENTENCE_BYTES_MAX].decode("utf-8", "ignore").encode("utf-8")
        self.replies.answer(client, prefix, outcome, reason, body=body)

    def expel(self, link: bytes, now: float) -> None:
        """The server of this link is none any more: nothing is sent to it, and its topics wait for another."""
        server = self.table.links.get(link)
        if server is not None:
            self.table.detach(server)
            self.servers.presence.died(server, now)

    def server_message(self, link: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """Handle any message from the servers' side: origin, head and body."""
        self.servers.message(link, frames, now)

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """A message could not be sent: its link is closed (`gone`), or its queue is at the high-water mark."""
        if not send.to_server:
            self.counters["answers_dropped"] += 1
            return
        server = self.table.links.get(send.link)
        if gone:
            self.servers.presence.unreachable(send.link, now)
            self._report = float("-inf"), b""  # It says that this server is heard.
        if len(send.frames[0]):
            try:
                prefix = unpack(bytes(send.frames[1][:PREFIX_LENGTH_MAX]))
            except DecodeError:
                self.counters["malformed"] += 1
                return
            outcome = Outcome.UNAVAILABLE if gone else Outcome.BUSY
            name = server.id if server is not None else ""
            reason = f"server_{name}_is_not_heard" if gone else f"the_queue_to_server_{name}_is_full"
            self.replies.answer(bytes(send.frames[0][1:]), prefix, outcome, reason, name)

    def suspend(self, reason: str, now: float) -> None:
        """Nothing can be remembered at present (the disk is full): serve nothing that would have to be.

        What was about to be sent followed from what could not be written, and is dropped: whoever sent it asks again.
        Requests are answered `unavailable`, so that clients go to another proxy; heartbeats go on.
        """
        if not self.replies.suspended:
            self.notices.say("suspended", f"the routes file cannot be written, nothing is routed: {reason}", now)
        self.replies.take()
        self.replies.suspended = reason

    def resume(self, now: float) -> None:
        """What was left to be written is on the disk."""
        if self.replies.suspended:
            self.replies.suspended = ""
            self.notices.say("resumed", Routine("the routes file is written again"), now)
            self.notices.settled("suspended")


def _history(head: Buffer) -> tuple[str, str]:
    """The logs that a request names as `log=` and `avoid=`; "" where it does not."""
    log = avoid = ""
    for word in bytes(head).split(b"\r", 1)[0].split(b" ")[3:]:
        if word.startswith(b"log="):
            log = word[4:].decode("ascii", "replace")
        elif word.startswith(b"avoid="):
            avoid = word[6:].decode("ascii", "replace")
    return log, avoid
