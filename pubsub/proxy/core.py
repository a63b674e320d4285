"""ProxyCore: all decisions of a proxy, without a socket, a file or a clock of its own.

A proxy forwards each request to the server that holds the topic, and each answer back to the client. It keeps no state
per request. On its way to a server a message carries the client's link (the routing ID of its connection) in an
envelope frame, the origin. The server returns that frame in front of its answer.

The proxy itself decides four things:

* the server of a topic (`routing_table`)
* the announcements that it accepts (`admission`)
* the servers that count as alive (`presence`)
* the answer to a request that no server can serve

The shell calls `route` for the link of nearly every request. All other messages go through `client_message` and
`server_message`. These put messages to send into `replies`, and facts to remember into `table.changes`. The shell must
write `table.changes` to the disk before it sends anything.

The rules are those of docs/explanation/ownership.md, O3; docs/explanation/register.md, R17.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pubsub.base.clock import Stamps
from pubsub.config.addresses import reaches_out
from pubsub.config.settings import ProxySettings
from pubsub.errors import DecodeError
from pubsub.messenger.framing import PREFIX_LENGTH_MAX, Prefix, unpack
from pubsub.protocol import Operate, Outcome, Report, Unsubscribe, decode, request_route
from pubsub.protocol.batch import Buffer
from pubsub.protocol.topic_objects import NO_SUCH_TOPIC
from pubsub.proxy.deletions import ProxyDeletions
from pubsub.proxy.members import Members
from pubsub.proxy.missing_topics import may_create, refusal, where_unseen
from pubsub.proxy.notices import Notices, Routine
from pubsub.proxy.operations import Operations
from pubsub.proxy.patterns import ProxyPatterns
from pubsub.proxy.register import Registers
from pubsub.proxy.remembered import Remembered
from pubsub.proxy.replies import Replies, Send
from pubsub.proxy.report import Facts, build_report
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server
from pubsub.proxy.servers import HEAD_BYTES_MAX, STARTING, Servers

READS: Final = frozenset({"GET", "READ", "SETTINGS", "PURGE", "WORK", "DESCRIBE", "GROUP"})
"""Requests that do not create a topic."""
REQUESTS: Final = READS | {"SUBSCRIBE", "UNSUBSCRIBE", "CONFIGURE", "PUT", "STAGE", "PUBLISH"}

ANSWERS: Final = frozenset({"STATUS", "VOTE"})
"""Not answered: an answer to an answer would start an endless exchange."""

REPORT_SECONDS: Final = 0.25
"""Age up to which the last report is sent again instead of a new one."""

SENTENCE_BYTES_MAX: Final = 300
"""Limit of the sentence that tells a client which right it lacks."""

NOBODY: Final = "no_server_sends_heartbeats"
DRAINING: Final = "every_server_is_draining"
WITNESS: Final = "this_proxy_is_a_witness"


class ProxyCore:
    """The decisions of one proxy.

    Args:
        now: the monotonic clock, in seconds; the start-up wait begins here.
        wall: seconds since 1970 at that moment.
        remembered: the contents of the routes file.

    Attributes:
        table: the holders of each topic, and the changes that are not written yet.
        replies: messages to send in this order, after the changes are written.
        members: the handling of members of stores that have a register.
        keys: returns the part of a report about keys; None for a proxy without keys.
        may_name: returns whether the sender of a request (link, head) may learn that a topic exists.
        process: returns the resources that the process uses.
        metrics: URL of the metrics; "" if they are not served.
    """

    def __init__(self, settings: ProxySettings, now: float, wall: float, remembered: Remembered | None = None) -> None:
        self.settings = settings
        self.table = RoutingTable(settings.topics_max)
        held = remembered or Remembered()
        self.table.restore(held, settings.heartbeat_seconds, settings.liveness, now)
        # A witness keeps the table, because it reports the other holders of a topic. It forwards nothing by it.
        self._routes: Mapping[str, Server] = {} if settings.witness else self.table.single
        self.notices = Notices()
        stamps = Stamps(wall, now)
        self.replies = Replies(settings.id, stamps)
        self.counters = self.replies.counters
        registers = Registers(settings.id, held.identity, held.registers, self.table.changes, settings.patience_seconds)
        self.members = Members(self.table, registers, self.replies)
        self.patterns = ProxyPatterns(self.table, self.replies, stamps, held.patterns)
        self.deletions = ProxyDeletions(self.table, self.replies, stamps, held.deletions)
        rows = self.patterns, self.deletions
        self.servers = Servers(settings, self.table, self.replies, self.notices, stamps, self.members, *rows, now)
        self._operations = Operations(self.table, self.servers, self.replies, self.notices, self.patterns)
        self.keys: Callable[[], Mapping[str, Any]] | None = None
        self.may_name: Callable[[bytes, bytes, str], bool] = lambda client, head, topic: True
        self.process: Callable[[], Mapping[str, int]] = dict
        self.metrics = ""
        self._started = now
        self._report: tuple[float, bytes] = (float("-inf"), b"")

    @property
    def suspended(self) -> str:
        """Why nothing can be remembered at present, "" if it can; see `suspend`."""
        return self.replies.suspended

    @property
    def deadline(self) -> float:
        """The monotonic time of the next call of `tick`."""
        return min(self.servers.presence.deadline, self.patterns.deadline)

    def tick(self, now: float) -> None:
        """Do the work that is due. Call it before messages are handled that arrived meanwhile."""
        self.servers.tick(now)
        self.patterns.tick(now)
        self.deletions.tick(now)
        self.patterns.look()

    def leave(self, now: float) -> None:
        """Send a last heartbeat to each server, because the process ends."""
        self.servers.presence.leave(now)

    def route(self, head: bytes, now: float) -> bytes | None:
        """Return the link of the server for this request, or None if `client_message` has to handle it.

        Args:
            head: prefix and header of a message from a client.
            now: the monotonic clock, in seconds.
        """
        parts = head.split(b"-", 3)
        if len(parts) == 4 and len(head) <= HEAD_BYTES_MAX and not self.replies.suspended:
            route = request_route(parts[3])
            if route is not None and route[0] in REQUESTS:
                server = self._routes.get(route[2])
                if server is not None and server.liveness.alive(now) and route[2] not in server.lacks:
                    server.liveness.sent(now)
                    return server.link
        return None

    def room_for(self, link: bytes, client: bytes, frames: tuple[Buffer, ...]) -> bool:
        """Return whether a request with a large body fits into the bytes in flight to `link`.

        `route` has returned `link` for this request. If there is no room, the request is answered as busy.
        """
        server = self.table.links[link]
        if server.in_flight.has_room(client, len(frames[1])):
            return True
        self.replies.crowded(server, client, frames[0])
        return False

    def went(self, link: bytes, client: bytes, size: int, now: float) -> None:
        """Count a large body that the shell has sent to `link`."""
        server = self.table.links[link]
        if server.in_flight.add(client, size):
            self.replies.beat(server, now)

    def client_message(self, client: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """Handle any message from a client.

        Args:
            client: its link.
            frames: head and body; any other number of frames is refused.
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
        elif name in {"PATTERN", "MATCHING"}:
            self.patterns.request(client, prefix, (head, *frames[1:]), now)
        elif name == "DELETE":
            self.deletions.request(client, prefix, (head, *frames[1:]), now)
        elif name in {"REPORT", "OPERATE"}:
            self._asked_by_operator(client, prefix, (head, *frames[1:]), now)
        elif name in ANSWERS:
            self.counters["answers_of_clients_dropped"] += 1
        else:
            self.replies.refuse(client, prefix, "not_a_request_of_a_client")

    def _request(
        self, client: bytes, prefix: Prefix, name: str, topic: str, frames: tuple[Buffer, ...], now: float
    ) -> None:
        """Forward a request, or answer it at once if no server can serve it."""
        if closed := self.replies.suspended or (WITNESS if self.settings.witness else ""):
            self.replies.answer(client, prefix, Outcome.UNAVAILABLE, closed)
            return
        holders = self.table.holders(topic)
        if holders:
            log, avoid = _history(frames[0]) if len(holders) > 1 else ("", "")
            server = self.table.choose(topic, log, avoid, now)
            if server is None:
                self.replies.answer(
                    client, prefix, Outcome.UNAVAILABLE, self._silence_reason(holders[0]), holders[0].id
                )
            else:
                self.deletions.forward(server, client, prefix, topic, frames, now)
            return
        try:
            request = decode(bytes(frames[0])[prefix.length :], frames[1] if len(frames) > 1 else b"")
        except DecodeError as error:
            self.replies.refuse(client, prefix, error.reason)
            return
        if awaits := self.servers.store_directory.awaits():
            # A store from which this proxy has received no announcement yet may hold the topic.
            self.replies.answer(client, prefix, Outcome.UNAVAILABLE, awaits)
            return
        server = self.table.assignments.assigned(topic, now)
        if server is None or name not in READS:
            if now < self.servers.starts_at:
                self.replies.answer(client, prefix, Outcome.UNAVAILABLE, STARTING)
                return
            # A read that names a log goes to a server, which answers that the topic is gone. Any other read is answered
            # here, because reading does not create a topic.
            if name in READS and not _history(frames[0])[0]:
                self.replies.answer(client, prefix, Outcome.UNKNOWN, "no_server_holds_this_topic")
                return
            if not (self.settings.topics_auto or name in READS or may_create(topic, request)):
                self._missing(client, prefix, request, server, frames, now)
                return
            if not self.table.may_assign(topic):
                self._full(client, prefix, now)
                return
            server = self.table.assign(topic, now)
        if server is None:
            self.replies.answer(client, prefix, Outcome.UNAVAILABLE, DRAINING if self.table.alive(now) else NOBODY)
            return
        self.deletions.forward(server, client, prefix, topic, frames, now)

    def _full(self, client: bytes, prefix: Prefix, now: float) -> None:
        text = f"no room for another topic: topics_max = {self.settings.topics_max} is reached"
        self.notices.say("full", text, now)
        self.replies.answer(client, prefix, Outcome.FULL, "topics_max_is_reached")

    def _missing(
        self, client: bytes, prefix: Prefix, request: Any, maker: Server | None, frames: tuple[Buffer, ...], now: float
    ) -> None:
        """Answer a request for a topic without a holder that only an operator may create.

        Args:
            maker: the live server to which a request to create the topic was forwarded.
        """
        if maker is not None:
            self.deletions.forward(maker, client, prefix, request.topic, frames, now)
        elif reason := where_unseen(self.table, request.topic, now) or ("" if self.table.alive(now) else NOBODY):
            self.replies.answer(client, prefix, Outcome.UNAVAILABLE, reason)
        elif isinstance(request, Unsubscribe):
            self.replies.answer(client, prefix, Outcome.SUCCESS)  # No server has a subscription that could be ended.
        else:
            self.counters["missing_topics_refused"] += 1
            head = bytes(frames[0])

            def exists(name: str) -> bool:
                return bool(self.table.holders(name)) and self.may_name(client, head, name)

            text = refusal(request.topic, exists, SENTENCE_BYTES_MAX)
            self.replies.answer(client, prefix, Outcome.DENIED, NO_SUCH_TOPIC, body=text.encode("ascii"))

    def _asked_by_operator(self, client: bytes, prefix: Prefix, frames: tuple[Buffer, ...], now: float) -> None:
        """Answer a REPORT or OPERATE, or forward it to its target if that is a server."""
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
                client, prefix, Outcome.UNAVAILABLE, f"server_{asked.target}_sends_no_heartbeats", asked.target
            )
        else:
            self.replies.answer(client, prefix, Outcome.UNKNOWN, f"server_{asked.target}_is_not_known")

    def startup_seconds_left(self, now: float) -> float:
        """Return the seconds for which the proxy assigns no topic yet."""
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
            unfinished=self.deletions.unfinished(now),
            patterns=self.patterns.known,
            witness=self.settings.witness,
            keys=self.keys() if self.keys is not None else None,
            insecure=next(filter(reaches_out, addresses), "") if self.keys is None else "",
            process=self.process(),
            metrics=self.metrics,
            last_report=lambda server: self.servers.last_reports.of(server, now),
        )

    def _silence_reason(self, server: Server) -> str:
        """Return the reason of an answer about a topic of a silent holder.

        It names the store if another server has the same ID.
        """
        if self.table.named(server.id) in {None, server}:
            return f"server_{server.id}_sends_no_heartbeats"
        return f"server_{server.id}_with_store_{server.store}_sends_no_heartbeats"

    def reject(self, client: bytes, head: bytes, outcome: Outcome, reason: str, text: str = "", after: int = 0) -> None:
        """Answer a request that the proxy rejects.

        Args:
            client: the link of the client.
            head: prefix and header of the request.
            outcome: DENIED, REFUSED, or BUSY for a put above a quota.
            reason: one word.
            text: the reason as a sentence for a person, cut off after SENTENCE_BYTES_MAX bytes.
            after: with BUSY, milliseconds until the request may be sent again.
        """
        try:
            prefix = unpack(head)
        except DecodeError:
            self.counters["malformed"] += 1
            return
        if outcome is Outcome.REFUSED:
            self.counters["refused"] += 1
        body = text.encode("utf-8")[:SENTENCE_BYTES_MAX].decode("utf-8", "ignore").encode("utf-8")
        self.replies.answer(client, prefix, outcome, reason, body=body, after=after)

    def expel(self, link: bytes, now: float) -> None:
        """Send nothing more to the server of this link, because its key lost its rights.

        Its topics wait for a server.
        """
        server = self.table.links.get(link)
        if server is not None:
            self.table.detach(server)
            self.servers.presence.died(server, now)

    def server_message(self, link: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """Handle any message from the servers' side: origin, head and body."""
        self.servers.message(link, frames, now)
        self.patterns.look()

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """Handle a message that was not sent: its link is closed (`gone`), or its queue is at the high-water mark."""
        if not send.to_server:
            self.counters["answers_dropped"] += 1
            return
        server = self.table.links.get(send.link)
        if gone:
            self.servers.presence.unreachable(send.link, now)
            self._report = float("-inf"), b""  # The last report still shows this server as alive.
        if len(send.frames[0]):
            try:
                prefix = unpack(bytes(send.frames[1][:PREFIX_LENGTH_MAX]))
            except DecodeError:
                self.counters["malformed"] += 1
                return
            outcome = Outcome.UNAVAILABLE if gone else Outcome.BUSY
            name = server.id if server is not None else ""
            reason = f"server_{name}_sends_no_heartbeats" if gone else f"the_queue_to_server_{name}_is_full"
            self.replies.answer(bytes(send.frames[0][1:]), prefix, outcome, reason, name)

    def suspend(self, reason: str, now: float) -> None:
        """Serve nothing that has to be remembered, because nothing can be written at present (the disk is full).

        Messages waiting to be sent depend on the changes that could not be written, so they are dropped. Their senders
        repeat the requests. New requests are answered `unavailable`, so that clients use another proxy. Heartbeats
        continue.
        """
        if not self.replies.suspended:
            self.notices.say(
                "suspended", f"the routes file cannot be written, so no request is forwarded: {reason}", now
            )
        self.replies.take()
        self.replies.suspended = reason

    def resume(self, now: float) -> None:
        """Serve again, because all changes are on the disk."""
        if self.replies.suspended:
            self.replies.suspended = ""
            self.notices.say("resumed", Routine("the routes file can be written again, requests are forwarded"), now)
            self.notices.settled("suspended")


def _history(head: Buffer) -> tuple[str, str]:
    """Return the logs that a request names as `log=` and `avoid=`, each "" if it is absent."""
    log = avoid = ""
    for word in bytes(head).split(b"\r", 1)[0].split(b" ")[3:]:
        if word.startswith(b"log="):
            log = word[4:].decode("ascii", "replace")
        elif word.startswith(b"avoid="):
            avoid = word[6:].decode("ascii", "replace")
    return log, avoid
