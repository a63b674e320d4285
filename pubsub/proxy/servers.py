"""The proxy's conversation with its servers: who of them says what, and who else holds a topic.

The rules are those of docs/architecture.md, *Ownership*. What is announced is taken by `announcements`; who is there is
known to `presence`. A topic with several holders is contested (`routing_table`); here they are asked to merge it.

Whatever comes from a server is a sign of life; its answers are passed on to the client that the origin frame names; and
what has an empty origin is meant for the proxy. Only a link that announced itself, and was believed, counts as a
server's: answers from any other are dropped, and who sends a heartbeat on one is asked to announce itself.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from pubsub.base.clock import Stamps
from pubsub.base.limits import HEADER_LENGTH_MAX
from pubsub.config.settings import ProxySettings
from pubsub.errors import DecodeError
from pubsub.messenger.framing import PREFIX_LENGTH_MAX, Prefix, unpack
from pubsub.protocol import Heartbeat, Operate, Outcome, Periodic, Status, Whole, decode, join_topics, split_topics
from pubsub.protocol.batch import Buffer
from pubsub.protocol.register import Accept, Admit, Look, Prepare, Vote
from pubsub.proxy.announcements import Announcements
from pubsub.proxy.last_reports import CALLBACK, LastReports
from pubsub.proxy.members import Members
from pubsub.proxy.notices import Notices
from pubsub.proxy.presence import Presence
from pubsub.proxy.remembered import AbandonedLog
from pubsub.proxy.replies import ORIGIN_MARK, Replies, Send
from pubsub.proxy.roster import Roster
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server

HEAD_BYTES_MAX: Final = HEADER_LENGTH_MAX + PREFIX_LENGTH_MAX
EXPIRE_SECONDS: Final = 1.0
MERGE_SECONDS: Final = 1.0
"""How often the holders of a contested topic are asked to merge, until it is settled."""

MERGES_MAX: Final = 100
"""Topics for which that is asked at once; the next time it is asked for others first."""

STARTING: Final = "proxy_starting"


class Servers:
    """All servers that announced themselves.

    Args:
        settings: the proxy's.
        table: where what they announce is kept.
        replies: where answers go.
        notices: where what an operator must know goes.
        stamps: hears the servers' stamps.
        members: answers who asks about a register.
        now: the monotonic clock, in seconds; the start-up wait begins here.

    Attributes:
        starts_at: when the start-up wait ends.
        roster: the stores that this proxy has to have heard before it speaks for all.
        presence: who is there.
        announcements: what they announce.
        last_reports: what they said of themselves last.
    """

    def __init__(
        self,
        settings: ProxySettings,
        table: RoutingTable,
        replies: Replies,
        notices: Notices,
        stamps: Stamps,
        members: Members,
        now: float,
    ) -> None:
        self._settings, self._table, self._replies, self._notices = settings, table, replies, notices
        self._stamps, self._members = stamps, members
        self._counters = replies.counters
        self.roster = Roster(table, (settings.heartbeat_seconds, settings.liveness, now))
        self.presence = Presence(settings, table, replies, notices, now)
        self.announcements = Announcements(
            settings, table, replies, notices, stamps, self.roster, self.presence, members
        )
        wait = settings.startup_wait_seconds
        self.starts_at = now + (settings.patience_seconds if wait is None else wait)
        self.last_reports = LastReports(replies)
        self._expired = self._merged = now

    def message(self, link: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """Handle any message from the servers' side.

        Args:
            link: where it came from.
            frames: origin, head and body; other numbers of frames are dropped.
            now: the monotonic clock, in seconds.
        """
        server = self._table.links.get(link)
        if server is not None:
            server.liveness.heard(now)
        if not 2 <= len(frames) <= 3:
            self._counters["malformed"] += 1
        elif not len(frames[0]):
            self._conversation(server, link, frames, now)
        elif server is None or frames[0][:1] != ORIGIN_MARK:
            self._counters["answers_of_strangers_dropped"] += 1
        elif self._replies.suspended:
            self._counters["answers_dropped"] += 1  # The answer may rest on an announcement that could not be written.
        else:
            self._replies.sends.append(Send(False, bytes(frames[0][1:]), frames[1:]))

    def _conversation(self, server: Server | None, link: bytes, frames: tuple[Buffer, ...], now: float) -> None:
        """A message that is meant for the proxy itself."""
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
            # The list of topics may be long, so it is decoded later, and only where it is needed.
            said = decode(head[prefix.length :], b"")
            if isinstance(said, Periodic):
                self.announcements.take(link, prefix, said, body, now)
            elif isinstance(said, Heartbeat):
                self._heartbeat(server, link, prefix, said, now)
            elif isinstance(said, Whole):
                self._whole(server, link, prefix, said, body, now)
            elif isinstance(said, Operate) and said.action == "abandoned":
                self._told_abandoned(server, said, now)
            elif isinstance(said, Prepare | Accept | Look | Admit):
                self._members.asked(link, prefix, said, now)
            elif isinstance(said, Vote):
                self._counters["answers_of_servers"] += 1  # To answer an answer would never end.
            elif isinstance(said, Status):
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

    def _heartbeat(self, server: Server | None, link: bytes, prefix: Prefix, said: Heartbeat, now: float) -> None:
        """HEARTBEAT: the link was noted already; from a stranger, ask who it is."""
        self._stamps.hear(said.stamp, now)
        if server is None:
            if not said.leaving:
                self._replies.tell(link, prefix, Outcome.ANNOUNCE, "not_known_here")
        elif server.id != said.sender:
            raise DecodeError(f"this link is server {server.id}")
        elif said.leaving:
            self._table.detach(server)
            self.presence.died(server, now, left=True)
            if said.empty:
                self.roster.left(server)

    def _whole(self, server: Server | None, link: bytes, prefix: Prefix, said: Whole, body: Buffer, now: float) -> None:
        """WHOLE: for each topic all other holders, dead ones included; no answer while one may be missing."""
        if server is None or server.id != said.sender:
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
        elif awaits := self.roster.awaits():
            reason = awaits
        else:
            self._counters["whole_answered"] += 1
            others = {topic: self._table.named_holders(topic, but=server) for topic in topics}
            since = min((one.said_all for one in self._table.servers.values() if one is not server), default=0)
            self._replies.tell(link, prefix, Outcome.SUCCESS, body=join_topics(others), since=since)
            return
        self._counters["whole_unavailable"] += 1
        self._replies.tell(link, prefix, Outcome.UNAVAILABLE, reason)

    def _told_abandoned(self, server: Server | None, said: Operate, now: float) -> None:
        """A server was named another holder of a topic that it knows as given up: this proxy has forgotten that.

        It was an operator's decision, and is not made anew here: it holds whether that holder is heard or not.
        """
        if server is None or server.id != said.sender:
            self._counters["answers_of_strangers_dropped"] += 1
            return
        for holder in [one for one in self._table.holders(said.topic) if one.topics[said.topic] == said.log]:
            if not self._table.abandon(AbandonedLog(said.topic, said.log, holder.id, holder.store, holder.address)):
                return
            text = (
                f"topic {said.topic} of server {holder.id} was given up, with log {said.log}, server {server.id} says"
            )
            self._notices.say(f"dead {said.log}", text, now)
            if holder.link is not None:  # The server announces itself again, and the answer to that tells it.
                self._replies.tell(holder.link, Prefix(0, 0, 0, 0), Outcome.ANNOUNCE, "a_log_was_given_up")

    def tick(self, now: float) -> None:
        """Do what is due: heartbeats, deaths, merges, assignments that were never used.

        To be called before what arrived meanwhile is handled (see `Presence.tick`).
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
        """Ask every live holder of a contested topic but the one with the lowest ID to give it to that one.

        Servers do nothing where it is out of date, and several proxies may ask at once (Pires et al., section 3.1.6).
        """
        self._merged = now
        live = (
            (topic, [holder for holder in holders if holder.alive(now)])
            for topic, holders in self._table.contested.items()
        )
        for topic, (receiver, *givers) in list(islice((found for found in live if len(found[1]) > 1), MERGES_MAX)):
            # To the end: a hundred that cannot be settled, as of a store that is held back, are in nobody's way.
            self._table.contested[topic] = self._table.contested.pop(topic)
            for giver in givers:
                self._replies.merge(giver, topic, receiver, now)
