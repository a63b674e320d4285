"""Messages between the proxy and its servers: their handling, and the questions about other holders of a topic.

The rules are in docs/explanation/ownership.md. `announcements` handles announcements, `presence` knows which
servers are alive. A topic with several holders is contested (`routing_table`); this module asks the holders to merge
it.

Any message from a server is a sign of life. An answer goes to the client that the origin frame names. A message with an
empty origin is for the proxy itself. A link belongs to a server only after its announcement was accepted. Answers from
other links are dropped, and the sender of a heartbeat on another link is asked to announce itself.

The rules are those of docs/explanation/merge.md, M1; docs/explanation/sole-ownership.md, W5.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from pubsub.base.clock import Stamps
from pubsub.base.limits import HEADER_LENGTH_MAX
from pubsub.config.settings import ProxySettings
from pubsub.errors import DecodeError
from pubsub.messenger.framing import PREFIX_LENGTH_MAX, Prefix, unpack
from pubsub.protocol import Heartbeat, Operate, Outcome, Owners, Periodic, Status, decode, join_topics, split_topics
from pubsub.protocol.batch import Buffer
from pubsub.protocol.deletions import Deleted
from pubsub.protocol.families import Patterns
from pubsub.protocol.register import Accept, Admit, Look, Prepare, Vote
from pubsub.proxy.announcements import Announcements
from pubsub.proxy.deletions import ProxyDeletions
from pubsub.proxy.last_reports import CALLBACK, LastReports
from pubsub.proxy.members import Members
from pubsub.proxy.notices import Notices
from pubsub.proxy.patterns import ProxyPatterns
from pubsub.proxy.presence import Presence
from pubsub.proxy.remembered import AbandonedLog
from pubsub.proxy.replies import ORIGIN_MARK, Replies, Send
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server
from pubsub.proxy.store_directory import StoreDirectory

HEAD_BYTES_MAX: Final = HEADER_LENGTH_MAX + PREFIX_LENGTH_MAX
EXPIRE_SECONDS: Final = 1.0
MERGE_SECONDS: Final = 1.0
"""Interval of the requests to the holders of a contested topic to merge it, until it has one holder."""

MERGES_MAX: Final = 100
"""Topics in one round of these requests. The next round begins with other topics."""

STARTING: Final = "proxy_starting"


class Servers:
    """All servers that announced themselves.

    Args:
        stamps: receives the servers' timestamps.
        members: answers questions about a register.
        patterns: the patterns of subscribers.
        deletions: the deleted names.
        now: the monotonic clock, in seconds; the start-up wait begins here.

    Attributes:
        starts_at: the end of the start-up wait.
        roster: the stores from which this proxy needs an announcement before it vouches for unknown topics.
        last_reports: the last reports that servers sent about themselves.
    """

    def __init__(
        self,
        settings: ProxySettings,
        table: RoutingTable,
        replies: Replies,
        notices: Notices,
        stamps: Stamps,
        members: Members,
        patterns: ProxyPatterns,
        deletions: ProxyDeletions,
        now: float,
    ) -> None:
        self._settings, self._table, self._replies, self._notices = settings, table, replies, notices
        self._stamps, self._members = stamps, members
        self._patterns, self._deletions = patterns, deletions
        self._counters = replies.counters
        self.store_directory = StoreDirectory(table, (settings.heartbeat_seconds, settings.liveness, now))
        self.presence = Presence(settings, table, replies, notices, now)
        self.announcements = Announcements(
            settings, table, replies, notices, stamps, self.store_directory, self.presence, members, patterns, deletions
        )
        wait = settings.startup_wait_seconds
        self.starts_at = now + (settings.patience_seconds if wait is None else wait)
        self.last_reports = LastReports(replies)
        self._expired = self._merged = now

    def message(self, link: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """Handle any message from the servers' side.

        Args:
            link: the link on which it arrived.
            frames: origin, head and body; a message with another number of frames is dropped.
            now: the monotonic clock, in seconds.
        """
        server = self._table.links.get(link)
        if server is not None:
            server.liveness.received(now)
        if not 2 <= len(frames) <= 3:
            self._counters["malformed"] += 1
        elif not len(frames[0]):
            self._handle_session(server, link, frames, now)
        elif server is None or frames[0][:1] != ORIGIN_MARK:
            self._counters["answers_of_strangers_dropped"] += 1
        elif self._replies.suspended:
            self._counters["answers_dropped"] += 1  # The answer may depend on an announcement that is not written.
        else:
            self._replies.sends.append(Send(False, bytes(frames[0][1:]), frames[1:]))

    def _handle_session(self, server: Server | None, link: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """Handle a message for the proxy itself."""
        head = bytes(frames[1][: HEAD_BYTES_MAX + 1])
        body = frames[2] if len(frames) > 2 else b""
        try:
            prefix = unpack(head)
            if len(head) > HEAD_BYTES_MAX:
                raise DecodeError("too long a header")
        except DecodeError:
            self._counters["malformed"] += 1
            return
        try:
            # The list of topics may be long, so it is decoded later, and only if it is needed.
            message = decode(head[prefix.length :], b"")
            if isinstance(message, Periodic):
                self.announcements.take(link, prefix, message, body, now)
            elif isinstance(message, Heartbeat):
                self._heartbeat(server, link, prefix, message, now)
            elif isinstance(message, Owners):
                self._whole(server, link, prefix, message, body, now)
            elif isinstance(message, Operate) and message.action == "abandoned":
                self._told_abandoned(server, message, now)
            elif isinstance(message, Patterns | Deleted):
                self._told_rows(server, prefix, head, body, now)
            elif isinstance(message, Prepare | Accept | Look | Admit):
                self._members.asked(link, prefix, message, now)
            elif isinstance(message, Vote):
                self._counters["answers_of_servers"] += 1  # An answer is not answered.
            elif isinstance(message, Status):
                self._counters["answers_of_servers"] += 1
                if server is not None and prefix.destination == CALLBACK:
                    self.last_reports.take(server, body, now)
                elif server is not None:
                    server.in_flight.confirm(prefix.destination)
            else:
                raise DecodeError("not a message for a proxy")
        except DecodeError as error:
            self._counters["refused"] += 1
            self._replies.tell(link, prefix, Outcome.REFUSED, error.reason)

    def _heartbeat(self, server: Server | None, link: bytes, prefix: Prefix, message: Heartbeat, now: float) -> None:
        """Handle a HEARTBEAT: ask an unknown sender to announce itself, and let a leaving server go.

        `message` has recorded the sign of life already.
        """
        self._stamps.follow(message.stamp, now)
        if server is None:
            if not message.leaving:
                self._replies.tell(link, prefix, Outcome.ANNOUNCE, "not_known_here")
        elif server.id != message.sender:
            raise DecodeError(f"this link is server {server.id}")
        elif message.leaving:
            self._table.detach(server)
            self.presence.died(server, now, left=True)
            if message.empty:
                self.store_directory.left(server)

    def _whole(
        self, server: Server | None, link: bytes, prefix: Prefix, message: Owners, body: Buffer, now: float
    ) -> None:
        """Answer a WHOLE with all other holders of each topic, dead ones included.

        The answer is `unavailable` if a holder may be missing.
        """
        if server is None or server.id != message.sender:
            self._replies.tell(link, prefix, Outcome.ANNOUNCE, "not_known_here")
            return
        if bytes(body).count(b" ") >= self._settings.topics_max:
            raise DecodeError("more topics than topics_max")
        topics = split_topics(body)
        self._table.claim(topics, server, now)
        if now < self.starts_at:
            reason = STARTING
        elif self._replies.suspended:
            reason = self._replies.suspended
        elif not self.presence.agree(now):
            reason = "servers_name_different_proxies"
        elif any(one.overflow for one in self._table.servers.values()):
            reason = "topics_max_is_reached"
        elif any(not one.complete for one in self._table.alive(now)):
            reason = "an_announcement_is_missing"
        elif self._table.assignments.undecided(server, topics):
            reason = "topic_was_just_assigned"
        elif awaits := self.store_directory.awaits():
            reason = awaits
        else:
            self._counters["owners_answered"] += 1
            others = {topic: self._table.named_holders(topic, but=server) for topic in topics}
            since = min((one.announced_all for one in self._table.servers.values() if one is not server), default=0)
            differing, patterns = self._table.with_other_defaults(server), self._patterns.digest
            answer = join_topics(others) + self._patterns.denied(server, topics)
            self._replies.tell(
                link, prefix, Outcome.SUCCESS, body=answer, since=since, patterns=patterns, defaults=differing
            )
            return
        self._counters["owners_unavailable"] += 1
        self._replies.tell(link, prefix, Outcome.UNAVAILABLE, reason)

    def _told_rows(self, server: Server | None, prefix: Prefix, head: bytes, body: Buffer, now: float) -> None:
        """Handle the patterns, or the deletions, that a server knows."""
        message = decode(head[prefix.length :], body)
        assert isinstance(message, Patterns | Deleted)
        if server is None or server.id != message.sender:
            self._counters["answers_of_strangers_dropped"] += 1
        elif isinstance(message, Deleted):
            self._deletions.told(server, message, now)
        else:
            self._patterns.told(server, message, now)

    def _told_abandoned(self, server: Server | None, message: Operate, now: float) -> None:
        """Handle a server's report that a holder which this proxy named was given up: this proxy does not know that.

        An operator decided it, so it takes effect whether that holder is alive or not.
        """
        if server is None or server.id != message.sender:
            self._counters["answers_of_strangers_dropped"] += 1
            return
        for holder in [one for one in self._table.holders(message.topic) if one.topics[message.topic] == message.log]:
            if not self._table.abandon(
                AbandonedLog(message.topic, message.log, holder.id, holder.store, holder.address)
            ):
                return
            text = (
                f"topic {message.topic} of server {holder.id} was given up with its log {message.log},"
                f" server {server.id} reports"
            )
            self._notices.say(f"dead {message.log}", text, now)
            if holder.link is not None:  # The server announces itself, and the answer reports the abandoned log.
                self._replies.tell(holder.link, Prefix(0, 0, 0, 0), Outcome.ANNOUNCE, "a_log_was_given_up")

    def tick(self, now: float) -> None:
        """Do the work that is due: heartbeats, deaths, merges, expiry of unused assignments.

        Call it before messages are handled that arrived meanwhile (see `Presence.tick`).
        """
        self.presence.tick(now)
        if now - self._expired >= EXPIRE_SECONDS:
            self._expired = now
            self._table.assignments.expire(now)
            self.announcements.watch_contested(now)
            self.last_reports.look(self._table.alive(now), now)
            self.last_reports.forget(self._table.servers)
        if self._table.contested:
            if now - self._merged >= MERGE_SECONDS:
                self._merge(now)
            self.presence.deadline = min(self.presence.deadline, self._merged + MERGE_SECONDS)

    def _merge(self, now: float) -> None:
        """Ask every live holder of a contested topic to give it to the one with the lowest ID.

        Servers ignore an outdated request, and several proxies may ask at once (Pires et al., section 3.1.6).
        """
        self._merged = now
        live = (
            (topic, [holder for holder in holders if holder.alive(now)])
            for topic, holders in self._table.contested.items()
        )
        for topic, (receiver, *givers) in list(islice((found for found in live if len(found[1]) > 1), MERGES_MAX)):
            # Move the topic to the end, so that topics that cannot be merged now do not delay the others.
            self._table.contested[topic] = self._table.contested.pop(topic)
            for giver in givers:
                self._replies.merge(giver, topic, receiver, now)
