"""ProxyCore: all that a proxy decides, without a socket, a file or a clock of its own.

A proxy passes requests to the server that holds their topic, and the servers' answers back, and holds nothing per
request: on its way to a server a message carries the client's link in an envelope frame, the origin, and the server
sends it back in front of the answer. What it decides itself is little: where a topic is (`routing`), whose
announcements count (`admission`), who is still alive, and what to say at once where nobody can serve a request.

The shell asks `route` for the link of nearly every request. Everything else goes through `client_message` and
`server_message`, which put what is to be sent into `outbox` and what is to be remembered into `table.changes`. The
rule between the two is the shell's to keep: what stands in `table.changes` is on the disk before anything is sent.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Final, NamedTuple

from pubsub.clock import Stamps
from pubsub.config.settings import ProxySettings
from pubsub.errors import DecodeError
from pubsub.limits import HEADER_LENGTH_MAX
from pubsub.liveness import Liveness
from pubsub.messenger.framing import PREFIX_LENGTH_MAX, Prefix, pack, unpack
from pubsub.protocol import (
    Heartbeat,
    Message,
    Outcome,
    Periodic,
    Report,
    Status,
    Whole,
    decode,
    encode,
    join_topics,
    request_route,
    split_topics,
)
from pubsub.protocol.batch import Buffer
from pubsub.proxy.admission import Judgement, Verdict, follows, judge
from pubsub.proxy.notices import Notices
from pubsub.proxy.report import Facts, build_report
from pubsub.proxy.routing import Remembered, RoutingTable, Server, StoreRow

REQUESTS: Final = frozenset({"SUBSCRIBE", "UNSUBSCRIBE", "GET", "PUT"})
ORIGIN_MARK: Final = b"c"
"""First byte of an origin frame that names a client; the proxy's own conversation has an empty one."""

HEAD_BYTES_MAX: Final = HEADER_LENGTH_MAX + PREFIX_LENGTH_MAX
CONTESTED_MAX: Final = 10_000
"""Contested topics that one answer to an announcement names; the others follow as these are settled."""

REPORT_SECONDS: Final = 0.25
"""A report is made at most so often; whoever asks in between gets the last one."""

EXPIRE_SECONDS: Final = 1.0
NOBODY: Final = "no_server_is_heard"
STARTING: Final = "proxy_starting"


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


class ProxyCore:
    """One proxy.

    Args:
        settings: its settings.
        now: the monotonic clock, in seconds; the start-up wait begins here.
        wall: seconds since 1970 at that moment.
        remembered: what the routes file holds.

    Attributes:
        table: who holds what, and the changes that are not written yet.
        outbox: what is to be sent, in this order, after the changes are written.
        notices: lines for the log.
        counters: how often what happened.
        suspended: why nothing can be remembered at present, "" while it can; see `suspend`.
        deadline: when `tick` is to be called next.
    """

    def __init__(self, settings: ProxySettings, now: float, wall: float, remembered: Remembered | None = None) -> None:
        self.settings = settings
        self.table = RoutingTable(settings.topics_max)
        self.table.restore(remembered or Remembered(), settings.heartbeat_seconds, settings.liveness, now)
        self.outbox: list[Send] = []
        self.notices = Notices()
        self.counters: Counter[str] = Counter()
        self.suspended = ""
        self.started = self.deadline = now
        wait = settings.startup_wait_seconds
        self.starts_at = now + (settings.patience_seconds if wait is None else wait)
        self._stamps = Stamps(wall, now)
        self._message_id = 0
        self._expired = now
        self._report: tuple[float, bytes] = (float("-inf"), b"")

    # Clients ----------------------------------------------------------------------------------------------------------

    def route(self, head: bytes, now: float) -> bytes | None:
        """The link of the server that this request is for, in the usual case; None: ask `client_message`.

        Args:
            head: prefix and header of a message from a client.
            now: the monotonic clock, in seconds.
        """
        parts = head.split(b"-", 3)
        if len(parts) == 4 and len(head) <= HEAD_BYTES_MAX and not self.suspended:
            route = request_route(parts[3])
            if route is not None and route[0] in REQUESTS:
                server = self.table.single.get(route[2])
                if server is not None and server.liveness.alive(now):
                    server.liveness.sent(now)
                    return server.link
        return None

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
            self._refuse(client, prefix, "too_many_frames_or_too_long_a_header")
            return
        route = request_route(head[prefix.length :])
        name = route[0] if route is not None else ""
        if name in REQUESTS:
            assert route is not None
            self._request(client, prefix, name, route[2], (head, *frames[1:]), now)
        elif name == "REPORT":
            self._asked_for_report(client, prefix, (head, *frames[1:]), now)
        elif name == "STATUS":
            self.counters["answers_of_clients_dropped"] += 1  # To answer an answer would never end.
        else:
            self._refuse(client, prefix, "not_a_request_of_a_client")

    def _request(
        self, client: bytes, prefix: Prefix, name: str, topic: str, frames: tuple[Buffer, ...], now: float
    ) -> None:
        """Send a request on to whom it belongs, or say at once why that cannot be."""
        if self.suspended:
            self._answer(client, prefix, Outcome.UNAVAILABLE, self.suspended)
            return
        holders = self.table.holders(topic)
        if holders:
            log, avoid = _history(frames[0]) if len(holders) > 1 else ("", "")
            server = self.table.choose(topic, log, avoid, now)
            if server is None:
                self._answer(client, prefix, Outcome.UNAVAILABLE, self._not_heard(holders[0]), holders[0].id)
            else:
                self._forward(server, client, frames, now)
            return
        try:
            decode(bytes(frames[0])[prefix.length :], frames[1] if len(frames) > 1 else b"")
        except DecodeError as error:
            self._refuse(client, prefix, error.reason)
            return
        server = self.table.assigned(topic, now)
        if server is None or name != "GET":
            if now < self.starts_at:
                self._answer(client, prefix, Outcome.UNAVAILABLE, STARTING)
                return
            if name == "GET":
                self._answer(client, prefix, Outcome.UNKNOWN, "no_server_holds_this_topic")
                return
            if not self.table.may_assign(topic):
                self.notices.say("full", f"no room for another topic: topics_max = {self.settings.topics_max}", now)
                self._answer(client, prefix, Outcome.FULL, "topics_max_is_reached")
                return
            server = self.table.assign(topic, now)
        if server is None:
            self._answer(client, prefix, Outcome.UNAVAILABLE, NOBODY)
            return
        self._forward(server, client, frames, now)

    def _forward(self, server: Server, client: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        assert server.link is not None
        server.liveness.sent(now)
        self.outbox.append(Send(True, server.link, (ORIGIN_MARK + client, *frames)))

    def _asked_for_report(self, client: bytes, prefix: Prefix, frames: tuple[Buffer, ...], now: float) -> None:
        try:
            asked = decode(bytes(frames[0])[prefix.length :], frames[1] if len(frames) > 1 else b"")
        except DecodeError as error:
            self._refuse(client, prefix, error.reason)
            return
        assert isinstance(asked, Report)
        if asked.target == "-":
            made, body = self._report
            if not made <= now < made + REPORT_SECONDS:
                body = build_report(self.table, self._facts(now), now)
                self._report = now, body
            self._answer(client, prefix, Outcome.SUCCESS, body=body)
            return
        server = self.table.named(asked.target)
        if server is not None and server.alive(now):
            self._forward(server, client, frames, now)
        elif server is not None or any(known.id == asked.target for known in self.table.servers.values()):
            self._answer(client, prefix, Outcome.UNAVAILABLE, f"server_{asked.target}_is_not_heard", asked.target)
        else:
            self._answer(client, prefix, Outcome.UNKNOWN, f"server_{asked.target}_is_not_known")

    def _facts(self, now: float) -> Facts:
        return Facts(
            proxy=self.settings.id,
            uptime_seconds=now - self.started,
            startup_seconds_left=max(0.0, self.starts_at - now),
            suspended=self.suspended,
            counters=dict(self.counters),
            notices=[(now - said, text) for said, text in self.notices.recent],
            left_out=self.notices.left_out,
        )

    def _not_heard(self, server: Server) -> str:
        """Why a topic of this dead holder cannot be served, told apart from another server under its ID."""
        if self.table.named(server.id) in {None, server}:
            return f"server_{server.id}_is_not_heard"
        return f"server_{server.id}_with_store_{server.store}_is_not_heard"

    # Servers ----------------------------------------------------------------------------------------------------------

    def server_message(self, link: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """Handle any message from the servers' side.

        Args:
            link: where it came from.
            frames: origin, head and body; other numbers of frames are dropped.
            now: the monotonic clock, in seconds.
        """
        server = self.table.links.get(link)
        if server is not None:
            server.liveness.heard(now)
        if not 2 <= len(frames) <= 3:
            self.counters["malformed"] += 1
        elif not len(frames[0]):
            self._conversation(server, link, frames, now)
        elif server is None or frames[0][:1] != ORIGIN_MARK:
            self.counters["answers_of_strangers_dropped"] += 1
        elif self.suspended:
            self.counters["answers_dropped"] += 1  # It may rest on an announcement that could not be written.
        else:
            self.outbox.append(Send(False, bytes(frames[0][1:]), frames[1:]))

    def _conversation(self, server: Server | None, link: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """A message that is meant for the proxy itself."""
        head = bytes(frames[1][: HEAD_BYTES_MAX + 1])
        body = frames[2] if len(frames) > 2 else b""
        try:
            prefix = unpack(head)
            if len(head) > HEAD_BYTES_MAX:
                raise DecodeError("too long a header")
        except DecodeError:
            self.counters["malformed"] += 1
            return
        try:
            # The list of topics is taken apart later, and only where it is needed: it may be long.
            said = decode(head[prefix.length :], b"")
            if isinstance(said, Periodic):
                self._announcement(link, prefix, said, body, now)
            elif isinstance(said, Heartbeat):
                self._heartbeat(server, link, prefix, said, now)
            elif isinstance(said, Whole):
                self._whole(server, link, prefix, said, body, now)
            elif isinstance(said, Status):
                self.counters["answers_of_servers"] += 1
            else:
                raise DecodeError("not a message for a proxy")
        except DecodeError as error:
            self.counters["refused"] += 1
            self._tell(link, prefix, Outcome.REFUSED, error.reason)

    def _announcement(self, link: bytes, prefix: Prefix, said: Periodic, body: Buffer, now: float) -> None:
        """PERIODIC: judge it, take it over, answer it."""
        if not self._stamps.hear(said.stamp, now):
            self.notices.say(f"clock {said.sender}", f"server {said.sender} has a clock more than an hour ahead", now)
        judgement = judge(self.table, link, said, now)
        if judgement.verdict is not Verdict.ACCEPT:
            self._turn_down(link, prefix, said, judgement, now)
            return
        known = self.table.servers.get(said.store)
        if known is None and len(self.table.servers) >= self.settings.servers_max and not self.table.evict():
            self.counters["announcements_refused"] += 1
            self.notices.say("servers_max", f"no room for server {said.sender}: servers_max is reached", now)
            self._tell(link, prefix, Outcome.FULL, "servers_max_is_reached")
            return
        over = bytes(body).count(b" ") >= self.settings.topics_max
        digest = blake2b(body, digest_size=16).digest()
        same = known is not None and not said.partial and digest == known.digest
        topics = {} if over or same else split_topics(body)
        server = known or Server(
            StoreRow(said.store, said.sender, -1, -1, said.address),
            Liveness(self.settings.heartbeat_seconds, self.settings.liveness, now),
        )
        complete = not said.partial or (server.complete and follows(server, said))
        self._admit(server, link, said, now)
        self.counters["announcements"] += 1
        if not (same or over):
            left_out = self.table.update(server, topics) if said.partial else self.table.replace(server, topics)
            # A part that says nothing of what was left out before does not make the table complete.
            over = bool(left_out) or (server.overflow and bool(said.partial))
            server.digest = b"" if said.partial or over else digest
        if over and not same:
            self.notices.say("full", f"server {server.id} holds topics beyond topics_max; they are not routed", now)
        overflow = server.overflow if same else over
        if (overflow, said.incarnation, said.change) != (server.overflow, server.incarnation, server.change):
            server.overflow, server.incarnation, server.change = overflow, said.incarnation, said.change
            self.table.note(server)
        server.complete = complete
        self._say_contested(server, topics, now)
        self._answer_announcement(server, prefix)

    def _admit(self, server: Server, link: bytes, said: Periodic, now: float) -> None:
        """The sender of an announcement is this store's server from now on."""
        server.liveness.heard(now)
        if server.link != link:
            server.newcomer = None
            for other in self.table.attach(server, link):
                other.newcomer = None
                self._died(other, now)
                text = f"server {other.id} came with another store; what store {other.store} holds is not available"
                self.notices.say(f"store {other.store}", text, now)
        if server.id != said.sender:
            text = f"store {server.store}, which was server {server.id}, is server {said.sender} now"
            self.notices.say(f"moved {server.store}", text, now)
        if (server.id, server.address) != (said.sender, said.address):
            server.id, server.address = said.sender, said.address
            self.table.note(server)
        if not server.was_alive:
            server.was_alive = True
            self.notices.say(f"heard {server.store}", f"server {server.id} is heard", now)
            self.notices.settled(f"silent {server.store}")
        server.proxies = tuple(sorted(set(said.proxies.split(","))))
        if not self.agree(now):
            self.notices.say("proxies", "servers name different sets of proxies; see: pubsub status", now)
        self.deadline = min(self.deadline, server.liveness.deadline())

    def _answer_announcement(self, server: Server, prefix: Prefix) -> None:
        """SUCCESS with the topics of this server that others hold too; or the wish to hear all."""
        assert server.link is not None
        if not server.complete:
            self.counters["announcements_asked"] += 1
            self._tell(server.link, prefix, Outcome.ANNOUNCE, "an_announcement_is_missing", change=server.change)
            return
        contested: dict[str, str] = {}
        for topic, holders in self.table.contested.items():
            if server in holders and len(contested) < CONTESTED_MAX:
                contested[topic] = ",".join(holder.id for holder in holders)
        outcome = Outcome.FULL if server.overflow else Outcome.SUCCESS
        reason = "topics_max_is_reached" if server.overflow else ""
        self._tell(server.link, prefix, outcome, reason, change=server.change, body=join_topics(contested))

    def _turn_down(self, link: bytes, prefix: Prefix, said: Periodic, judgement: Judgement, now: float) -> None:
        """An announcement that is not believed."""
        verdict, reason = judgement.verdict, judgement.reason
        self.counters[f"announcements_{verdict.value}"] += 1
        if verdict is Verdict.LATE:
            return
        if verdict is Verdict.ASK:
            self._tell(link, prefix, Outcome.ANNOUNCE, "say_all_first")
            return
        if verdict is Verdict.TAKEN:
            for rival in judgement.rivals:
                # If its link is closed, the shell finds out by this very message, and the newcomer need not wait.
                rival.newcomer = link
                self._beat(rival, now)
        text = f"announcement of server {said.sender} (store {said.store}) is {verdict.value}: {reason}"
        self.notices.say(f"{verdict.value} {said.store}", text, now)
        known = self.table.servers.get(said.store)
        self._tell(link, prefix, Outcome(verdict.value), reason, change=known.change if known is not None else 0)

    def _heartbeat(self, server: Server | None, link: bytes, prefix: Prefix, said: Heartbeat, now: float) -> None:
        """HEARTBEAT: the link was noted already; from a stranger, ask who it is."""
        self._stamps.hear(said.stamp, now)
        if server is None:
            if not said.leaving:
                self._tell(link, prefix, Outcome.ANNOUNCE, "not_known_here")
        elif server.id != said.sender:
            raise DecodeError(f"this link is server {server.id}")
        elif said.leaving:
            self.notices.say(f"left {server.store}", f"server {server.id} has left", now)
            self.table.detach(server)
            self._died(server, now)

    def _whole(self, server: Server | None, link: bytes, prefix: Prefix, said: Whole, body: Buffer, now: float) -> None:
        """WHOLE: for each topic all other holders, dead ones included; no answer while one may be missing."""
        if server is None or server.id != said.sender:
            self._tell(link, prefix, Outcome.ANNOUNCE, "not_known_here")
            return
        if bytes(body).count(b" ") >= self.settings.topics_max:
            raise DecodeError("more topics than topics_max")
        topics = split_topics(body)
        if now < self.starts_at:
            reason = STARTING
        elif self.suspended:
            reason = self.suspended
        elif not self.agree(now):
            reason = "servers_name_different_proxies"
        elif any(one.overflow for one in self.table.servers.values()):
            reason = "topics_max_is_reached"
        elif any(not one.complete for one in self.table.alive(now)):
            reason = "an_announcement_is_missing"
        elif self.table.undecided(server, topics, now):
            reason = "topic_was_just_assigned"
        else:
            self.counters["whole_answered"] += 1
            others = {topic: ",".join(self.table.other_holders(server, topic)) for topic in topics}
            self._tell(link, prefix, Outcome.SUCCESS, body=join_topics(others))
            return
        self.counters["whole_unavailable"] += 1
        self._tell(link, prefix, Outcome.UNAVAILABLE, reason)

    def agree(self, now: float) -> bool:
        """Whether all live servers name the same proxies."""
        return len({server.proxies for server in self.table.alive(now)}) <= 1

    def _say_contested(self, server: Server, topics: dict[str, str], now: float) -> None:
        contested = self.table.contested
        for topic in topics if len(topics) < len(contested) else contested:
            if topic in contested and server in contested[topic]:
                names = ", ".join(f"{one.id} (log {one.topics[topic]})" for one in contested[topic])
                self.notices.say(f"contested {topic}", f"topic {topic} has more than one holder: {names}", now)

    # Links, time and the disk -----------------------------------------------------------------------------------------

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """A message could not be sent: its link is closed (`gone`), or its queue is at the high-water mark."""
        if not send.to_server:
            self.counters["answers_dropped"] += 1
            return
        server = self.table.links.get(send.link)
        if gone:
            self.unreachable(send.link, now)
        if len(send.frames[0]):
            try:
                prefix = unpack(bytes(send.frames[1][:PREFIX_LENGTH_MAX]))
            except DecodeError:
                self.counters["malformed"] += 1
                return
            outcome = Outcome.UNAVAILABLE if gone else Outcome.BUSY
            name = server.id if server is not None else ""
            reason = f"server_{name}_is_not_heard" if gone else f"the_queue_to_server_{name}_is_full"
            self._answer(bytes(send.frames[0][1:]), prefix, outcome, reason, name)

    def unreachable(self, link: bytes, now: float) -> None:
        """A server's link was found closed: it counts as dead until it is heard again."""
        server = self.table.links.get(link)
        if server is not None:
            server.liveness.forget()
            self._died(server, now)

    def _died(self, server: Server, now: float) -> None:
        """The server counts as dead from now on."""
        if server.was_alive:
            server.was_alive = False
            text = f"server {server.id} is not heard; topics that it alone holds are unavailable: {len(server.topics)}"
            self.notices.say(f"silent {server.store}", text, now)
            self.notices.settled(f"heard {server.store}")
        if server.newcomer is not None:
            self._tell(server.newcomer, Prefix(0, 0, 0, 0), Outcome.ANNOUNCE, "the_other_one_is_gone")
            server.newcomer = None

    def tick(self, now: float) -> None:
        """Do what is due: heartbeats, deaths, assignments that were never used."""
        deadline = now + self.settings.heartbeat_seconds
        for server in list(self.table.links.values()):
            if server.liveness.due(now):
                self._beat(server, now)
            alive = server.liveness.alive(now)
            if alive and not server.was_alive:
                server.was_alive = True
                self.notices.say(f"heard {server.store}", f"server {server.id} is heard again", now)
                self.notices.settled(f"silent {server.store}")
            elif not alive:
                self._died(server, now)
            deadline = min(deadline, server.liveness.deadline())
            if alive:
                deadline = min(deadline, server.liveness.expiry())
        if now - self._expired >= EXPIRE_SECONDS:
            self._expired = now
            self.table.expire(now)
        self.deadline = deadline

    def leave(self) -> None:
        """Say good-bye to the servers; the process ends."""
        said = Heartbeat(self.settings.id, self._stamps.last, leaving=1)
        for server in self.table.links.values():
            if server.link is not None:
                self._to_server(server.link, 0, said)

    def suspend(self, reason: str, now: float) -> None:
        """Nothing can be remembered at present (the disk is full): serve nothing that would have to be.

        What was about to be sent followed from what could not be written, and is dropped: whoever sent it asks again.
        Requests are answered `unavailable`, so that clients go to another proxy; heartbeats go on.
        """
        if not self.suspended:
            self.notices.say("suspended", f"the routes file cannot be written, nothing is routed: {reason}", now)
        self.outbox.clear()
        self.suspended = reason

    def resume(self, now: float) -> None:
        """What was left to be written is on the disk."""
        if self.suspended:
            self.suspended = ""
            self.notices.say("resumed", "the routes file is written again", now)
            self.notices.settled("suspended")

    # Sending ----------------------------------------------------------------------------------------------------------

    def _beat(self, server: Server, now: float) -> None:
        assert server.link is not None
        server.liveness.sent(now)
        self._to_server(server.link, 0, Heartbeat(self.settings.id, self._stamps.last))

    def _refuse(self, client: bytes, prefix: Prefix, reason: str) -> None:
        self.counters["refused"] += 1
        self._answer(client, prefix, Outcome.REFUSED, reason)

    def _answer(
        self, client: bytes, prefix: Prefix, outcome: Outcome, reason: str = "", server: str = "", body: bytes = b""
    ) -> None:
        """Answer a client; one that registered no callback for the answer gets none."""
        self.counters[f"answered_{outcome.value}"] += 1
        if prefix.source:
            status = Status(self.settings.id, outcome, reason=_words(reason), server=server, body=body)
            self.outbox.append(Send(False, client, self._frames(prefix.source, status)))

    def _tell(
        self,
        link: bytes,
        prefix: Prefix,
        outcome: Outcome,
        reason: str = "",
        *,
        change: int = 0,
        body: bytes = b"",
    ) -> None:
        """Answer a server. Where its message named no callback the answer names none either: its outcome says all."""
        if self.suspended and outcome is Outcome.SUCCESS:
            outcome, reason, body = Outcome.UNAVAILABLE, self.suspended, b""
        status = Status(
            self.settings.id, outcome, reason=_words(reason), change=change, stamp=self._stamps.last, body=body
        )
        self._to_server(link, prefix.source, status)

    def _to_server(self, link: bytes, destination: int, message: Message) -> None:
        self.outbox.append(Send(True, link, (b"", *self._frames(destination, message))))

    def _frames(self, destination: int, message: Message) -> tuple[Buffer, ...]:
        self._message_id += 1
        header, body = encode(message)
        head = pack(self._message_id, 0, destination) + header
        return (head, body) if len(body) else (head,)


def _words(reason: str) -> str:
    """A reason as one word of printable ASCII."""
    return "".join(mark if "!" <= mark <= "~" else "_" for mark in reason[:300])


def _history(head: Buffer) -> tuple[str, str]:
    """The logs that a request names as `log=` and `avoid=`; "" where it does not."""
    log = avoid = ""
    for word in bytes(head).split(b"\r", 1)[0].split(b" ")[3:]:
        if word.startswith(b"log="):
            log = word[4:].decode("ascii", "replace")
        elif word.startswith(b"avoid="):
            avoid = word[6:].decode("ascii", "replace")
    return log, avoid
