"""The end of a run: all is delivered, merged and worked off, and the effects are compared with the promises."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from tests.groups.model.faults import Faults
from tests.groups.model.group import MemberRow
from tests.groups.model.holder import Holder
from tests.groups.model.member import Member
from tests.groups.model.messages import Content
from tests.groups.model.process import Effect
from tests.groups.model.publishers import Publisher
from tests.groups.model.topic import Topic

ROUNDS_MAX: Final = 120
"""Rounds after which the work counts as stuck."""


class Checks(Faults):
    """The last phase."""

    members: list[Member]
    publishers: list[Publisher]
    effects: list[Effect]
    acknowledged: set[Content]
    dead: set[tuple[int, Content]]
    skipped: set[tuple[int, Content]]
    excluded: dict[int, set[Content]]
    poison: set[Content]

    def part_of_content(self, content: Content) -> int:
        raise NotImplementedError

    def heal(self) -> None:
        """End all faults, work off what is there, and check."""
        self.healthy, self.deposed = True, None
        for _ in range(1000):
            if not self.late:
                break
            self.deliver_late()
        self.check_reached()
        self.come_back()
        self.merge()
        if len(self.holders()) == 2:
            self.servers[1].to = 0
            self.merge()
        for publisher in self.publishers:
            publisher.finish()
        server = self.holders()[0]
        topic = server.topic
        assert topic is not None
        self.drain(server, topic)
        self.check_retention(server, topic)
        self.poison.clear()
        if not self.violated("stuck"):
            server.redrive(topic)
            self.drain(server, topic)
        self.check(topic)

    def violated(self, kind: str) -> bool:
        raise NotImplementedError

    def check_reached(self) -> None:
        """Check that each member reaches the group while the topic is at two holders."""
        if not any(server.live for server in self.servers) or any(server.to is not None for server in self.servers):
            return
        for member in self.members:
            if not member.up or not member.subscription:
                continue
            member.reached, member.closing = False, 0
            for _ in range(4):
                member.speak(0, early=False)
            if member.up and member.subscription and not member.reached and self._has(member):
                self.object_to("the group is not reached", member.client)

    def _has(self, member: Member) -> bool:
        return any(server.live and server.live.number == member.subscription for server in self.servers)

    def drain(self, server: Holder, topic: Topic) -> None:
        """Let the members work until nothing is left."""
        for _ in range(ROUNDS_MAX):
            self.figures["rounds"] += 1
            self.clock += 100
            if server.live is not None and server.live.suspended:
                server.resume(topic, skip=False)
            alive = {server.key(member.identity) for member in self.members}
            for key in [key for key in server.offers if key not in alive]:
                server.silent(key)
            busy = False
            for member in self.members:
                busy |= member.settle()
            if server.live is None:
                continue
            waiting = any(topic.front(part, 1, self.clock, self.rules) for part in range(len(topic.own.parts)))
            waiting = waiting or bool(topic.own.delayed.keys() - topic.own.dead.keys())
            if not busy and not waiting and not any(member.held for member in self.members):
                return
            if self.keyed and not busy and self.is_blocked(topic):
                return
        self.object_to("stuck", [list(topic.waiting(part))[:3] for part in range(len(topic.own.parts))])

    def lost_rows(self, topic: Topic) -> list[MemberRow]:
        """Return the rows of members whose disk is lost."""
        alive = {server.key(member.identity) for member in self.members for server in self.servers}
        return [row for key, row in topic.own.members.items() if key not in alive]

    def blocked_parts(self, topic: Topic) -> set[int]:
        return {part for row in self.lost_rows(topic) for part in row.held.values()} if self.keyed else set()

    def is_blocked(self, topic: Topic) -> bool:
        """Return whether each part that waits does so for the claims of a lost disk."""
        blocked = self.blocked_parts(topic)
        return all(part in blocked or not list(topic.waiting(part)) for part in range(len(topic.own.parts)))

    # Checks

    def check_retention(self, server: Holder, topic: Topic) -> None:
        """Check that dead letters and old doubt do not hold the log."""
        if server.live is None or self.violated("stuck"):
            return
        for key in list(topic.own.members):
            server.copy_doubted(topic, key)
        topic.retain(self.rules)
        waiting = any(list(topic.waiting(part)) for part in range(len(topic.own.parts)))
        if not waiting and any(topic.low[log] <= len(records) for log, records in topic.logs.items()):
            self.object_to("the log is held", dict(topic.low))

    def check_closed(self) -> None:
        """Check that a member that closed has nothing."""
        for member in self.members:
            for server in self.servers if member.closed else ():
                key = server.key(member.identity)
                row = server.live.members.get(key) if server.live is not None else None
                if server.live is None or server.live.number != member.subscription:
                    continue
                if row is not None and row.held:
                    self.object_to("in doubt after a clean close", member.client)
                if server.offers.get(key):
                    self.object_to("offered after a clean close", member.client)

    def check(self, topic: Topic) -> None:
        """Compare the effects with the promises."""
        effects = [effect for effect in self.effects if not effect.undone]
        self.check_times(effects)
        if self.keyed:
            self.check_order(effects)
        group = topic.own
        if group.ended:
            self.object_to("stuck", "the group is not there")
            return
        lost = self.lost_rows(topic)
        for key, row in group.members.items():
            if row.held and row not in lost:
                self.object_to("claimed and idle", key)
        era, blocked = self.era(group.number), self.blocked_parts(topic)
        doubt = {topic.record(position).content for row in lost for position in row.held}
        done = {effect.content for effect in effects if self.era(effect.subscription) == era}
        excused = self.lost | doubt | self.excluded[group.number] | {one for of, one in self.skipped if of == era}
        for content in sorted(self.acknowledged - done - excused):
            if self.part_of_content(content) not in blocked:
                self.object_to("lost", content)

    def check_times(self, effects: list[Effect]) -> None:
        """Check that a second effect is told, and happens only after a release."""
        times = defaultdict[tuple[int, Content], list[Effect]](list)
        for effect in effects:
            times[self.era(effect.subscription), effect.content].append(effect)
        for one, some in times.items():
            if len(some) > 1 and one not in self.released:
                self.object_to("doubled", one)
            elif sum(not effect.doubtful for effect in some) > 1:
                self.object_to("untold", one)

    def check_order(self, effects: list[Effect]) -> None:
        """Check the order of each key, where nothing was released, skipped or dead."""
        broken = {(era, of[0], of[2]) for era, of in self.released | self.dead | self.skipped}
        highest: dict[tuple[int, str, int], int] = {}
        for effect in effects:
            publisher, number, key = effect.content
            one = (self.era(effect.subscription), publisher, key)
            if number < highest.get(one, 0) and one not in broken:
                self.object_to("order", effect.content)
            highest[one] = max(number, highest.get(one, 0))
