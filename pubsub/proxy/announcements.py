"""Announcements of servers: checked, taken into the routing table, and answered.

See docs/explanation/ownership.md, *Announcements*, O10.

A server announces all topics that it holds, or the changes. The answer names facts that the server lacks: its topics
with other holders, logs that operators gave up, and stores that the server does not know.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from typing import Final

from pubsub.base.clock import Stamps
from pubsub.base.liveness import Liveness
from pubsub.config.settings import ProxySettings
from pubsub.messenger.framing import Prefix
from pubsub.protocol import Outcome, Periodic, join_topics, split_topics
from pubsub.protocol.batch import Buffer
from pubsub.proxy.admission import Judgement, Verdict, follows, judge
from pubsub.proxy.deletions import ProxyDeletions
from pubsub.proxy.members import Members
from pubsub.proxy.notices import Notices, Routine
from pubsub.proxy.patterns import ProxyPatterns
from pubsub.proxy.presence import Presence
from pubsub.proxy.remembered import StoreRow
from pubsub.proxy.replies import Replies
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server
from pubsub.proxy.store_directory import StoreDirectory

CONTESTED_MAX: Final = 10_000
"""Contested topics that one answer to an announcement names. The others follow when these are settled."""

CONTESTED_SECONDS: Final = 60.0
"""Time after which an operator is warned of a topic with two holders. A move or a merge has two for a short time."""

ABANDONED_MAX: Final = 100
"""Abandoned logs of one topic that are reported to a server."""

STALE_MAX: Final = 256
"""Stores that the report lists as older copies."""


class Announcements:
    """Takes announcements of servers into the routing table.

    Args:
        stamps: receives the servers' timestamps.
        roster: receives the stores that servers name.
        presence: learns which servers are alive.
        members: learns the primary of a store with a register.
        patterns: learns which patterns a server knows.
        deletions: learns which deleted names a server knows.
    """

    def __init__(
        self,
        settings: ProxySettings,
        table: RoutingTable,
        replies: Replies,
        notices: Notices,
        stamps: Stamps,
        store_directory: StoreDirectory,
        presence: Presence,
        members: Members,
        patterns: ProxyPatterns,
        deletions: ProxyDeletions,
    ) -> None:
        self._settings, self._table, self._replies, self._notices = settings, table, replies, notices
        self._stamps, self._store_directory, self._presence, self._members = stamps, store_directory, presence, members
        self._counters = replies.counters
        self._contested_since: dict[str, float] = {}
        self._patterns, self._deletions = patterns, deletions

    def take(self, link: bytes, prefix: Prefix, message: Periodic, body: Buffer, now: float) -> None:
        """Handle a PERIODIC."""
        if not self._stamps.follow(message.stamp, now):
            text = f"server {message.sender} has a clock more than an hour ahead: set its clock"
            self._notices.say(f"clock {message.sender}", text, now)
        judgement = judge(self._table, link, message, now)
        if judgement.verdict is Verdict.ACCEPT:
            judgement = self._members.announced(message, now) or judgement
        if judgement.verdict is not Verdict.ACCEPT:
            self._turn_down(link, prefix, message, judgement, now)
            return
        known = self._table.servers.get(message.store)
        if known is None and len(self._table.servers) >= self._settings.servers_max and not self._table.evict():
            self._counters["announcements_refused"] += 1
            text = f"no room for server {message.sender}: servers_max is reached; raise it"
            self._notices.say("servers_max", text, now)
            self._replies.tell(link, prefix, Outcome.FULL, "servers_max_is_reached")
            return
        over = bytes(body).count(b" ") >= self._settings.topics_max
        digest = blake2b(body, digest_size=16).digest()
        same = known is not None and not message.partial and digest == known.digest and not known.given
        topics = {} if over or same else split_topics(body)
        server = known or Server(
            StoreRow(message.store, message.sender, -1, -1, message.address, announced=False),
            Liveness(self._settings.heartbeat_seconds, self._settings.liveness, now),
        )
        complete = not message.partial or (server.complete and follows(server, message))
        self._admit(server, link, message, now)
        if not message.partial:
            self._table.assignments.settle(server)
        self._counters["announcements"] += 1
        if not (same or over):
            left_out = (self._table.update if message.partial else self._table.replace)(server, topics, message.change)
            # A partial announcement does not mention topics left out earlier, so they stay left out.
            over = bool(left_out) or (server.overflow and bool(message.partial))
            server.digest = b"" if message.partial or over else digest
        if over and not same:
            self._notices.say(
                "full",
                f"server {server.id} holds topics beyond topics_max, which get no requests; raise topics_max",
                now,
            )
        self._note(server, message, over=over)
        server.complete = complete
        if not message.partial:
            self._receive_store_directory(server, message, now)
        self._say_contested(server, topics, now)
        self._answer_announcement(server, prefix, now, full=not message.partial)

    def _note(self, server: Server, message: Periodic, *, over: bool) -> None:
        """Remember the facts of an announcement over a restart."""
        defaults = server.defaults if message.partial else message.defaults
        facts = over, message.incarnation, message.change, defaults
        if facts != (server.overflow, server.incarnation, server.change, server.defaults):
            server.overflow, server.incarnation, server.change, server.defaults = facts
            self._table.note(server)

    def _receive_store_directory(self, server: Server, message: Periodic, now: float) -> None:
        """Take in the store directory of a full announcement."""
        server.announced_all, server.back = message.made, True
        self._patterns.announced(server, message.patterns)
        self._deletions.announced(server, message.deletions, now)
        waited = self._store_directory.awaits()
        fresh = self._store_directory.announced(server)
        self._store_directory.told(server, message.stores, message.gone)
        awaits = self._store_directory.awaits()
        if awaits and awaits != waited:
            text = (
                f"{awaits.replace('_', ' ')}: unknown topics are unavailable until it comes;"
                " if it is lost, run pubsub server forget"
            )
            self._notices.say("roster", text, now)
        if fresh and not self._replies.suspended:
            self.send_store_directory(server)

    def send_store_directory(self, of: Server | None = None) -> None:
        """Ask each server that does not know the store `of` to announce itself, or all servers for None.

        The answer to the announcement names the stores that the server lacks.
        """
        for other in self._table.links.values():
            if other is not of and (of is None or not self._store_directory.is_known_to(other, of.store)):
                assert other.link is not None
                self._replies.tell(other.link, Prefix(0, 0, 0, 0), Outcome.ANNOUNCE, "the_store_directory_changed")

    def _admit(self, server: Server, link: bytes, message: Periodic, now: float) -> None:
        """Make the sender of an announcement the server of its store."""
        server.liveness.received(now)
        if not server.announced:
            server.mark = max(server.mark, server.incarnation)  # Other servers know it with that incarnation.
        if server.id != message.sender:
            text = f"store {server.store}, which was server {server.id}, is server {message.sender} now"
            self._notices.say(f"moved {server.store}", text, now)
        if (server.id, server.address) != (message.sender, message.address):
            # Rename before attach, because attach disconnects any other server with this ID.
            self._table.rename(server, message.sender)
            server.address = message.address
            self._table.note(server)
        if server.link != link:
            self._replaces(server, message, now)
            server.newcomer = None
            for other in self._table.attach(server, link):
                other.newcomer = None
                self._presence.died(other, now)
                text = f"server {other.id} came with another store; the topics of store {other.store} are unavailable"
                self._notices.say(f"store {other.store}", text, now)
        self._presence.count_alive(server, now)
        server.proxies = tuple(sorted(set(message.proxies.split(","))))
        server.draining, server.member = bool(message.draining), message.member
        self._table.stale.pop(server.store, None)
        if not self._presence.agree(now):
            self._notices.say("proxies", "servers name different sets of proxies; see: pubsub status", now)
        self._presence.deadline = min(self._presence.deadline, server.liveness.deadline())

    def _replaces(self, server: Server, message: Periodic, now: float) -> None:
        """Depose the old primary on its link if another member announces itself.

        Clients repeat the requests that were sent on that link.
        """
        if server.link is None or not message.member or server.member in {"", message.member}:
            return
        text = Routine(f"server {message.sender} is member {message.member} now, under term {message.incarnation}")
        self._notices.say(f"member {server.store} {message.incarnation}", text, now)
        self._replies.tell(
            server.link, Prefix(0, 0, 0, 0), Outcome.DEPOSED, "another_is_primary", term=message.incarnation
        )

    def _answer_announcement(self, server: Server, prefix: Prefix, now: float, full: bool) -> None:
        """Answer SUCCESS with this server's contested topics, or ask for a full announcement."""
        assert server.link is not None
        if not server.complete:
            self._counters["announcements_asked"] += 1
            self._replies.tell(
                server.link, prefix, Outcome.ANNOUNCE, "an_announcement_is_missing", change=server.change
            )
            return
        contested: dict[str, str] = {}
        for topic, holders in self._table.contested.items():
            if server in holders and len(contested) < CONTESTED_MAX:
                contested[topic] = self._table.named_holders(topic)
        self._say_abandoned(server, contested, full)
        outcome = Outcome.FULL if server.overflow else Outcome.SUCCESS  # Each topic is named once.
        reason = "topics_max_is_reached" if server.overflow else ""
        self._replies.tell(
            server.link,
            prefix,
            outcome,
            reason,
            change=server.change,
            body=join_topics(contested),
            lacked=self._store_directory.lacked_by(server) if full else ("", ""),
            clock=self._stamps.clock(now) if full else 0,
        )

    def _say_abandoned(self, server: Server, told: dict[str, str], full: bool) -> None:
        """Report to a server which of its own logs, and which logs of its topics elsewhere, were given up."""
        for topic, log in islice(server.abandoned.items(), CONTESTED_MAX):
            told[topic] = log
        for topic, logs in self._table.abandoned.items() if full else ():
            if topic in server.topics:
                for lost in islice(logs.values(), ABANDONED_MAX):
                    self._replies.abandoned(server, lost)

    def _turn_down(self, link: bytes, prefix: Prefix, message: Periodic, judgement: Judgement, now: float) -> None:
        """Answer an announcement that is not accepted."""
        verdict, reason = judgement.verdict, judgement.reason
        self._counters[f"announcements_{verdict.value}"] += 1
        if verdict is Verdict.LATE:
            return
        if verdict is Verdict.ASK:
            self._replies.tell(link, prefix, Outcome.ANNOUNCE, "announce_all_topics_first")
            return
        if verdict is Verdict.TAKEN:
            for rival in judgement.rivals:
                # If the rival's link is closed, this heartbeat fails, and the new server need not wait.
                rival.newcomer = link
                self._replies.beat(rival, now)
        text = f"announcement of server {message.sender} (store {message.store}) is {verdict.value}: {reason}"
        if verdict is Verdict.DEPOSED:  # It will follow the other member, so an operator need not act.
            text = Routine(text)
        if verdict is Verdict.STALE and (message.store in self._table.stale or len(self._table.stale) < STALE_MAX):
            self._table.stale[message.store] = (
                f"server {message.sender} runs on an older copy of its store {message.store}"
            )
        self._notices.say(f"{verdict.value} {message.store}", text, now)
        known = self._table.servers.get(message.store)
        change, term = (known.change, known.incarnation) if known is not None else (0, 0)
        term = max(term, self._members.registers.term(message.store)) if verdict is Verdict.DEPOSED else 0
        self._replies.tell(link, prefix, Outcome(verdict.value), reason, change=change, term=term)

    def _say_contested(self, server: Server, topics: dict[str, str], now: float) -> None:
        contested = self._table.contested
        for topic in topics if len(topics) < len(contested) else contested:
            if topic in contested and server in contested[topic]:
                names = ", ".join(f"{one.id} (log {one.topics[topic]})" for one in contested[topic])
                self._contested_since.setdefault(topic, now)
                text = Routine(f"topic {topic} has more than one holder, which merge it: {names}")
                self._notices.say(f"contested {topic}", text, now)

    def watch_contested(self, now: float) -> None:
        """Warn of topics that have more than one holder for too long. A later contest of a topic is reported again."""
        since, contested = self._contested_since, self._table.contested
        for topic in [topic for topic in since if topic not in contested]:
            del since[topic]
            self._notices.settled(f"contested {topic}")
            self._notices.settled(f"contested long {topic}")
        for topic, began in since.items():
            if now - began >= CONTESTED_SECONDS:
                names = ", ".join(f"{one.id} (log {one.topics[topic]})" for one in contested[topic])
                text = f"topic {topic} has more than one holder, for {now - began:.0f} s now: {names}"
                self._notices.say(f"contested long {topic}", text, now)
