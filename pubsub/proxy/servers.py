"""The proxy's conversation with its servers: announcements, heartbeats, is a topic whole.

The rules are those of docs/architecture.md, *Ownership*.

Whatever comes from a server is a sign of life; its answers are passed on to the client that the origin frame names; and
what has an empty origin is meant for the proxy. Only a link that announced itself, and was believed, counts as a
server's: answers from any other are dropped, and who sends a heartbeat on one is asked to announce itself.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from typing import Final

from pubsub.clock import Stamps
from pubsub.config.settings import ProxySettings
from pubsub.errors import DecodeError
from pubsub.limits import HEADER_LENGTH_MAX
from pubsub.liveness import Liveness
from pubsub.messenger.framing import PREFIX_LENGTH_MAX, Prefix, unpack
from pubsub.protocol import Heartbeat, Operate, Outcome, Periodic, Status, Whole, decode, join_topics, split_topics
from pubsub.protocol.batch import Buffer
from pubsub.proxy.admission import Judgement, Verdict, follows, judge
from pubsub.proxy.notices import Notices, Routine
from pubsub.proxy.outbox import ORIGIN_MARK, Outbox, Send
from pubsub.proxy.roster import Roster
from pubsub.proxy.routing import DeadLog, RoutingTable, Server, StoreRow

HEAD_BYTES_MAX: Final = HEADER_LENGTH_MAX + PREFIX_LENGTH_MAX
CONTESTED_MAX: Final = 10_000
"""Contested topics that one answer to an announcement names; the others follow as these are settled."""

GIVEN_UP_MAX: Final = 100
"""Logs given up of one topic that a server is told of."""

STALE_MAX: Final = 256
EXPIRE_SECONDS: Final = 1.0
MERGE_SECONDS: Final = 1.0
"""How often the holders of a contested topic are asked to merge, until it is settled."""

CONTESTED_SECONDS: Final = 60.0
"""A move or a merge has two holders while it lasts; an operator is told of one that takes longer."""

MERGES_MAX: Final = 100
"""Topics for which that is asked at once; the others follow as these are settled."""

STARTING: Final = "proxy_starting"


class Servers:
    """All servers that announced themselves.

    Args:
        settings: the proxy's.
        table: where what they announce is kept.
        outbox: where answers go.
        notices: where what an operator must know goes.
        stamps: hears the servers' stamps.
        now: the monotonic clock, in seconds; the start-up wait begins here.

    Attributes:
        starts_at: when the start-up wait ends.
        deadline: when `tick` is to be called next.
        roster: the stores that this proxy has to have heard before it speaks for all.
    """

    def __init__(
        self, settings: ProxySettings, table: RoutingTable, outbox: Outbox, notices: Notices, stamps: Stamps, now: float
    ) -> None:
        self._settings, self._table, self._outbox, self._notices, self._stamps = (
            settings,
            table,
            outbox,
            notices,
            stamps,
        )
        self._counters = outbox.counters
        self.roster = Roster(table, (settings.heartbeat_seconds, settings.liveness, now))
        wait = settings.startup_wait_seconds
        self.starts_at = now + (settings.patience_seconds if wait is None else wait)
        self.deadline = now
        self._expired = self._ticked = self._merged = now
        self._contested_since: dict[str, float] = {}

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
        elif self._outbox.suspended:
            self._counters["answers_dropped"] += 1  # It may rest on an announcement that could not be written.
        else:
            self._outbox.sends.append(Send(False, bytes(frames[0][1:]), frames[1:]))

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
            # The list of topics is taken apart later, and only where it is needed: it may be long.
            said = decode(head[prefix.length :], b"")
            if isinstance(said, Periodic):
                self._announcement(link, prefix, said, body, now)
            elif isinstance(said, Heartbeat):
                self._heartbeat(server, link, prefix, said, now)
            elif isinstance(said, Whole):
                self._whole(server, link, prefix, said, body, now)
            elif isinstance(said, Operate) and said.action == "abandoned":
                self._told_given_up(server, said, now)
            elif isinstance(said, Status):
                self._counters["answers_of_servers"] += 1
                if server is not None:
                    server.flight.confirm(prefix.destination)
            else:
                raise DecodeError("not a message for a proxy")
        except DecodeError as error:
            self._counters["refused"] += 1
            self._outbox.tell(link, prefix, Outcome.REFUSED, error.reason)

    def _announcement(self, link: bytes, prefix: Prefix, said: Periodic, body: Buffer, now: float) -> None:
        """PERIODIC: judge it, take it over, answer it."""
        if not self._stamps.hear(said.stamp, now):
            self._notices.say(f"clock {said.sender}", f"server {said.sender} has a clock more than an hour ahead", now)
        judgement = judge(self._table, link, said, now)
        if judgement.verdict is not Verdict.ACCEPT:
            self._turn_down(link, prefix, said, judgement, now)
            return
        known = self._table.servers.get(said.store)
        if known is None and len(self._table.servers) >= self._settings.servers_max and not self._table.evict():
            self._counters["announcements_refused"] += 1
            self._notices.say("servers_max", f"no room for server {said.sender}: servers_max is reached", now)
            self._outbox.tell(link, prefix, Outcome.FULL, "servers_max_is_reached")
            return
        over = bytes(body).count(b" ") >= self._settings.topics_max
        digest = blake2b(body, digest_size=16).digest()
        same = known is not None and not said.partial and digest == known.digest and not known.hearsay
        topics = {} if over or same else split_topics(body)
        server = known or Server(
            StoreRow(said.store, said.sender, -1, -1, said.address, heard=False),
            Liveness(self._settings.heartbeat_seconds, self._settings.liveness, now),
        )
        complete = not said.partial or (server.complete and follows(server, said))
        self._admit(server, link, said, now)
        if not said.partial and self._table.doubts:
            self._table.settle_doubts(server)
        self._counters["announcements"] += 1
        if not (same or over):
            left_out = (self._table.update if said.partial else self._table.replace)(server, topics, said.change)
            # A part that says nothing of what was left out before does not make the table complete.
            over = bool(left_out) or (server.overflow and bool(said.partial))
            server.digest = b"" if said.partial or over else digest
        if over and not same:
            self._notices.say("full", f"server {server.id} holds topics beyond topics_max; they are not routed", now)
        overflow = server.overflow if same else over
        if (overflow, said.incarnation, said.change) != (server.overflow, server.incarnation, server.change):
            server.overflow, server.incarnation, server.change = overflow, said.incarnation, said.change
            self._table.note(server)
        server.complete = complete
        if not said.partial:
            self._take_roster(server, said, now)
        self._say_contested(server, topics, now)
        self._answer_announcement(server, prefix, full=not said.partial)

    def _take_roster(self, server: Server, said: Periodic, now: float) -> None:
        """A server has said all it holds, and whom it knows."""
        server.said_all, server.back = said.made, True
        waited = self.roster.awaits()
        fresh = self.roster.heard(server)
        self.roster.told(server, said.stores, said.gone)
        awaits = self.roster.awaits()
        if awaits and awaits != waited:
            text = f"{awaits.replace('_', ' ')}: topics unknown to this proxy wait for it, or for pubsub server forget"
            self._notices.say("roster", text, now)
        if fresh and not self._outbox.suspended:
            self.tell_roster(server)

    def tell_roster(self, of: Server | None = None) -> None:
        """Have every server that does not know of a store announce itself, or all: the answer tells what it lacks."""
        for other in self._table.links.values():
            if other is not of and (of is None or not self.roster.is_known_to(other, of.store)):
                assert other.link is not None
                self._outbox.tell(other.link, Prefix(0, 0, 0, 0), Outcome.ANNOUNCE, "the_roster_changed")

    def _admit(self, server: Server, link: bytes, said: Periodic, now: float) -> None:
        """The sender of an announcement is this store's server from now on."""
        server.liveness.heard(now)
        if server.link != link:
            server.newcomer = None
            for other in self._table.attach(server, link):
                other.newcomer = None
                self._died(other, now)
                text = f"server {other.id} came with another store; what store {other.store} holds is not available"
                self._notices.say(f"store {other.store}", text, now)
        if server.id != said.sender:
            text = f"store {server.store}, which was server {server.id}, is server {said.sender} now"
            self._notices.say(f"moved {server.store}", text, now)
        if (server.id, server.address) != (said.sender, said.address):
            server.id, server.address = said.sender, said.address
            self._table.note(server)
        if not server.was_alive:
            server.was_alive = True
            self._notices.say(f"heard {server.store}", Routine(f"server {server.id} is heard"), now)
            self._notices.settled(f"silent {server.store}")
        server.proxies = tuple(sorted(set(said.proxies.split(","))))
        server.draining = bool(said.draining)
        self._table.stale.pop(server.store, None)
        if not self.agree(now):
            self._notices.say("proxies", "servers name different sets of proxies; see: pubsub status", now)
        self.deadline = min(self.deadline, server.liveness.deadline())

    def _answer_announcement(self, server: Server, prefix: Prefix, full: bool) -> None:
        """SUCCESS with the topics of this server that others hold too; or the wish to hear all."""
        assert server.link is not None
        if not server.complete:
            self._counters["announcements_asked"] += 1
            self._outbox.tell(server.link, prefix, Outcome.ANNOUNCE, "an_announcement_is_missing", change=server.change)
            return
        contested: dict[str, str] = {}
        for topic, holders in self._table.contested.items():
            if server in holders and len(contested) < CONTESTED_MAX:
                contested[topic] = self._table.named_holders(topic)
        self._say_given_up(server, contested, full)
        outcome = Outcome.FULL if server.overflow else Outcome.SUCCESS  # A topic is named once: no holder is contested.
        reason = "topics_max_is_reached" if server.overflow else ""
        self._outbox.tell(
            server.link,
            prefix,
            outcome,
            reason,
            change=server.change,
            body=join_topics(contested),
            lacked=self.roster.lacked_by(server) if full else ("", ""),
        )

    def _say_given_up(self, server: Server, told: dict[str, str], full: bool) -> None:
        """Name to a server what it holds of what was given up, and what was given up of what it holds."""
        for topic, log in islice(server.dead.items(), CONTESTED_MAX):
            told[topic] = log
        for topic, logs in self._table.dead.items() if full else ():
            if topic in server.topics:
                for dead in islice(logs.values(), GIVEN_UP_MAX):
                    self._outbox.given_up(server, dead)

    def _told_given_up(self, server: Server | None, said: Operate, now: float) -> None:
        """A server was named another holder of a topic that it knows as given up: this proxy has forgotten that.

        It was an operator's decision, and is not made anew here: it holds whether that holder is heard or not.
        """
        if server is None or server.id != said.sender:
            self._counters["answers_of_strangers_dropped"] += 1
            return
        for holder in [one for one in self._table.holders(said.topic) if one.topics[said.topic] == said.log]:
            if not self._table.give_up(DeadLog(said.topic, said.log, holder.id, holder.store, holder.address)):
                return
            text = (
                f"topic {said.topic} of server {holder.id} was given up, with log {said.log}, server {server.id} says"
            )
            self._notices.say(f"dead {said.log}", text, now)
            if holder.link is not None:  # The answer to what it announces then tells it.
                self._outbox.tell(holder.link, Prefix(0, 0, 0, 0), Outcome.ANNOUNCE, "a_log_was_given_up")

    def _turn_down(self, link: bytes, prefix: Prefix, said: Periodic, judgement: Judgement, now: float) -> None:
        """An announcement that is not believed."""
        verdict, reason = judgement.verdict, judgement.reason
        self._counters[f"announcements_{verdict.value}"] += 1
        if verdict is Verdict.LATE:
            return
        if verdict is Verdict.ASK:
            self._outbox.tell(link, prefix, Outcome.ANNOUNCE, "say_all_first")
            return
        if verdict is Verdict.TAKEN:
            for rival in judgement.rivals:
                # If its link is closed, the shell finds out by this very message, and the newcomer need not wait.
                rival.newcomer = link
                self._outbox.beat(rival, now)
        text = f"announcement of server {said.sender} (store {said.store}) is {verdict.value}: {reason}"
        if verdict is Verdict.STALE and (said.store in self._table.stale or len(self._table.stale) < STALE_MAX):
            self._table.stale[said.store] = f"server {said.sender} runs on an older copy of its store {said.store}"
        self._notices.say(f"{verdict.value} {said.store}", text, now)
        known = self._table.servers.get(said.store)
        self._outbox.tell(link, prefix, Outcome(verdict.value), reason, change=known.change if known is not None else 0)

    def _heartbeat(self, server: Server | None, link: bytes, prefix: Prefix, said: Heartbeat, now: float) -> None:
        """HEARTBEAT: the link was noted already; from a stranger, ask who it is."""
        self._stamps.hear(said.stamp, now)
        if server is None:
            if not said.leaving:
                self._outbox.tell(link, prefix, Outcome.ANNOUNCE, "not_known_here")
        elif server.id != said.sender:
            raise DecodeError(f"this link is server {server.id}")
        elif said.leaving:
            self._table.detach(server)
            self._died(server, now, left=True)
            if said.empty:
                self.roster.left(server)

    def _whole(self, server: Server | None, link: bytes, prefix: Prefix, said: Whole, body: Buffer, now: float) -> None:
        """WHOLE: for each topic all other holders, dead ones included; no answer while one may be missing."""
        if server is None or server.id != said.sender:
            self._outbox.tell(link, prefix, Outcome.ANNOUNCE, "not_known_here")
            return
        if bytes(body).count(b" ") >= self._settings.topics_max:
            raise DecodeError("more topics than topics_max")
        topics = split_topics(body)
        self._table.claim(topics, server, now)
        if now < self.starts_at:
            reason = STARTING
        elif self._outbox.suspended:
            reason = self._outbox.suspended
        elif not self.agree(now):
            reason = "servers_name_different_proxies"
        elif any(one.overflow for one in self._table.servers.values()):
            reason = "topics_max_is_reached"
        elif any(not one.complete for one in self._table.alive(now)):
            reason = "an_announcement_is_missing"
        elif self._table.undecided(server, topics):
            reason = "topic_was_just_assigned"
        elif awaits := self.roster.awaits():
            reason = awaits
        else:
            self._counters["whole_answered"] += 1
            others = {topic: self._table.named_holders(topic, but=server) for topic in topics}
            since = min((one.said_all for one in self._table.servers.values() if one is not server), default=0)
            self._outbox.tell(link, prefix, Outcome.SUCCESS, body=join_topics(others), since=since)
            return
        self._counters["whole_unavailable"] += 1
        self._outbox.tell(link, prefix, Outcome.UNAVAILABLE, reason)

    def agree(self, now: float) -> bool:
        """Whether all live servers name the same proxies."""
        return len({server.proxies for server in self._table.alive(now)}) <= 1

    def _say_contested(self, server: Server, topics: dict[str, str], now: float) -> None:
        contested = self._table.contested
        for topic in topics if len(topics) < len(contested) else contested:
            if topic in contested and server in contested[topic]:
                names = ", ".join(f"{one.id} (log {one.topics[topic]})" for one in contested[topic])
                self._contested_since.setdefault(topic, now)
                text = Routine(f"topic {topic} has more than one holder, which are joined: {names}")
                self._notices.say(f"contested {topic}", text, now)

    def _watch_contested(self, now: float) -> None:
        """Tell of topics that have more than one holder for too long; another contest later is news."""
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

    def unreachable(self, link: bytes, now: float) -> None:
        """A server's link was found closed: it counts as dead until it is heard again."""
        server = self._table.links.get(link)
        if server is not None:
            server.liveness.forget()
            self._died(server, now)

    def _died(self, server: Server, now: float, *, left: bool = False) -> None:
        """The server counts as dead from now on. `left`: it said so itself."""
        if server.was_alive:
            server.was_alive = False
            tail = f"topics that it alone holds are unavailable: {len(server.topics)}"
            text = (
                Routine(f"server {server.id} has left; {tail}") if left else f"server {server.id} is not heard; {tail}"
            )
            self._notices.say(f"silent {server.store}", text, now)
            self._notices.settled(f"heard {server.store}")
        if server.newcomer is not None:
            self._outbox.tell(server.newcomer, Prefix(0, 0, 0, 0), Outcome.ANNOUNCE, "the_other_one_is_gone")
            server.newcomer = None

    def tick(self, now: float) -> None:
        """Do what is due: heartbeats, deaths, assignments that were never used.

        To be called before what arrived meanwhile is handled: after a pause of this process itself its servers only
        seem to have been silent, and nobody may take the place of one of them for that.
        """
        if now - self._ticked > 2 * self._settings.heartbeat_seconds:
            for server in self._table.links.values():
                if server.was_alive:
                    server.liveness.heard(now)
        self._ticked = now
        deadline = now + self._settings.heartbeat_seconds
        for server in list(self._table.links.values()):
            if server.liveness.due(now) or len(server.flight):
                self._outbox.beat(server, now)
            alive = server.liveness.alive(now)
            if alive and not server.was_alive:
                server.was_alive = True
                self._notices.say(f"heard {server.store}", Routine(f"server {server.id} is heard again"), now)
                self._notices.settled(f"silent {server.store}")
            elif not alive:
                self._died(server, now)
            deadline = min(deadline, server.liveness.deadline())
            if alive:
                deadline = min(deadline, server.liveness.expiry())
        if now - self._expired >= EXPIRE_SECONDS:
            self._expired = now
            self._table.expire(now)
            self._watch_contested(now)
        if self._table.contested:
            if now - self._merged >= MERGE_SECONDS:
                self._merge(now)
            deadline = min(deadline, self._merged + MERGE_SECONDS)
        self.deadline = deadline

    def _merge(self, now: float) -> None:
        """Ask every live holder of a contested topic but the one with the lowest ID to give it to that one.

        Servers do nothing where it is out of date, and several proxies may ask at once (Pires et al., section 3.1.6).
        """
        self._merged = now
        live = (
            (topic, [holder for holder in holders if holder.alive(now)])
            for topic, holders in self._table.contested.items()
        )
        for topic, (receiver, *givers) in islice((found for found in live if len(found[1]) > 1), MERGES_MAX):
            for giver in givers:
                self._outbox.merge(giver, topic, receiver, now)

    def leave(self, now: float) -> None:
        """Say good-bye to the servers; the process ends."""
        for server in self._table.links.values():
            self._outbox.beat(server, now, leaving=1)
