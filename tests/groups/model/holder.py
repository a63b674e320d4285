"""A server and its decisions about a group: the rules, without the network and without faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from tests.groups.model.group import Group, MemberRow
from tests.groups.model.messages import Answer, MemberID, Position, Request, Shown, Subscribe, Work
from tests.groups.model.rules import Rules
from tests.groups.model.topic import Topic

ATTEMPTS: Final = 3
LOSSES: Final = 6

Tell = Callable[[str, Group, Topic, Position], None]
"""Reports an event: "made" of a group; "released", "dead", "skipped" or "objection: …" of a message."""


class Holder:
    """A server.

    Attributes:
        topic: durable.
        to: the server to which the topic is moving; until the merge nothing is served.
        offers: in memory, in the order in which they were made.
        waiting: the WORK of each member that waits, and the claims of that member when it came.
    """

    def __init__(self, rules: Rules, random: Random, tell: Tell) -> None:
        self.rules, self.random, self.tell = rules, random, tell
        self.topic: Topic | None = None
        self.to: int | None = None
        self.forget_memory()

    def forget_memory(self) -> None:
        """End the process: offers and waiting requests go."""
        self.offers: dict[MemberID, list[Position]] = {}
        self.waiting: dict[MemberID, tuple[Work, tuple[Position, ...]]] = {}

    @property
    def serving(self) -> Topic | None:
        return self.topic if self.to is None else None

    @property
    def live(self) -> Group | None:
        """The group, if it is here, served and not ended."""
        group = self.serving.group if self.serving is not None else None
        return group if group is not None and not group.ended else None

    def key(self, sender: MemberID) -> MemberID:
        return sender if self.rules["store"] else (sender[0], 0)

    # Requests

    def handle(self, request: Request, now: int, *, sole: bool, keyed: bool) -> Answer | None:
        if self.serving is None:
            return None
        if isinstance(request, Subscribe):
            return self.subscribe(request, sole=sole, keyed=keyed)
        assert isinstance(request, Work)
        return self.serve(self.serving, request, now)

    def subscribe(self, request: Subscribe, *, sole: bool, keyed: bool) -> Answer:
        """Join the group, or make it."""
        topic = self.topic
        assert topic is not None
        group = topic.group
        if group is None or group.ended:
            late = group is not None and request.number < group.number and self.rules["end_number"]
            if late or (not sole and self.rules["home"]):
                return Answer("busy", request.process, request.number, topic.open)
            group = topic.begin(request.number, keyed, request.earliest)
            self.tell("made", group, topic, (topic.open, 0))
        return Answer("joined", request.process, request.number, topic.open, group.number)

    def serve(self, topic: Topic, work: Work, now: int) -> Answer | None:
        """Serve a WORK; None: it is late, or it waits."""
        group, rules = topic.group, self.rules
        if group is None or group.number < work.subscription:
            return Answer("unknown", work.process, work.number, topic.open)
        if group.ended or (group.number != work.subscription and rules["superseded"]):
            return Answer("superseded", work.process, work.number, topic.open)
        key = self.key(work.sender)
        row = group.members.setdefault(key, MemberRow())
        for position in work.done:
            topic.finish(position, row, rules)
        if work.number < row.number and rules["number"]:
            return None
        if work.number > row.number or not rules["number"]:
            row.number = max(work.number, row.number)
            if rules["ended_wait"]:
                self.waiting.pop(key, None)
            self.settle(topic, row, work, now)
            if self.give(topic, key, row, work, now):
                self.waiting[key] = (work, tuple(row.held))
                return None
        return self.answer(topic, key, work, now)

    def settle(self, topic: Topic, row: MemberRow, work: Work, now: int) -> None:
        """Count the attempts, and take back all that is not kept."""
        group = topic.own
        for position in sorted(work.tried | (row.held.keys() if work.cut else set())):
            if position in row.held or (topic.knows(position) and topic.waits(position)):
                group.attempts[position] += position not in work.later
                group.begun.add(position)
        for position in [position for position in row.held if position not in work.keep]:
            del row.held[position]
            topic.give_back(position)
        for position in sorted(work.tried | work.later.keys()):
            if topic.waits(position):
                topic.take(position)
                topic.give_back(position)
                group.delayed[position] = now + work.later.get(position, group.attempts[position])

    def give(self, topic: Topic, key: MemberID, row: MemberRow, work: Work, now: int) -> bool:
        """Claim and offer as the WORK asks; return whether it waits instead."""
        before = dict.fromkeys(self.offers.pop(key, ()))
        offered = [position for position in before if position in work.offered]
        if topic.own.suspended:
            return False
        for position in work.claims:
            if self.claim(topic, row, position, now) and position in offered:
                offered.remove(position)
        found = self.candidates(topic, key, row, work.want, offered, now)
        for position in found:
            if not work.early:
                offered.append(position)
            else:
                self.claim(topic, row, position, now)
        if offered:
            self.offers[key] = offered
        news = work.claims or found or offered or work.leaving or row.held.keys() != work.keep
        return bool(work.wait and not news)

    def claim(self, topic: Topic, row: MemberRow, position: Position, now: int) -> bool:
        """Claim a message for a member, if it waits."""
        group, rules = topic.own, self.rules
        if not topic.knows(position) or position in group.dead:
            return False
        part = topic.part_of(position)
        if group.delayed.get(position, 0) > now and rules["later"]:
            return False
        if group.keyed:
            others = [p for other in group.members.values() if other is not row for p in other.held.values()]
            if rules["part"] and part in others:
                return False
            if rules["front"] and topic.front(part, 1, now, rules) != [position]:
                return False
        if not topic.take(position) and (rules["once"] or position not in group.claimed()):
            return False
        if group.delayed.pop(position, 0) > now:
            self.tell("objection: early", group, topic, position)
        row.held[position] = part
        if position in group.done:
            self.tell("objection: given though done", group, topic, position)
        return True

    def candidates(
        self, topic: Topic, key: MemberID, row: MemberRow, want: int, offered: list[Position], now: int
    ) -> list[Position]:
        """Return messages that nobody has, for a member; one that failed too often becomes a dead letter."""
        group, out = topic.own, list[Position]()
        if want <= 0:
            return out
        others = {position for other, some in self.offers.items() if other != key for position in some}
        taken = {topic.part_of(position) for position in others if topic.knows(position)}
        taken |= {part for other in group.members.values() if other is not row for part in other.held.values()}
        parts = list(range(len(group.parts)))
        self.random.shuffle(parts)
        for part in parts:
            if group.keyed and self.rules["part"] and part in taken:
                continue
            for position in topic.front(part, want + len(offered) + len(others), now, self.rules):
                if len(out) >= want:
                    return out
                if group.attempts[position] >= ATTEMPTS or group.losses[position] >= LOSSES:
                    self.reject(topic, position, part)
                elif position not in offered and position not in others:
                    out.append(position)
        return out

    def reject(self, topic: Topic, position: Position, part: int) -> None:
        """Make a dead letter."""
        topic.take(position)
        group = topic.own
        group.delayed.pop(position, None)
        group.dead[position] = part
        if self.rules["copied"]:
            group.copies[position] = topic.record(position)
        self.tell("dead", group, topic, position)

    def answer(
        self, topic: Topic, key: MemberID, work: Work, now: int, was: Iterable[Position] | None = None
    ) -> Answer:
        """Return the records of a member, at this moment."""
        group, rules = topic.own, self.rules
        row = group.members[key]
        shown = [p for p in self.offers.get(key, ()) if topic.waits(p) and group.delayed.get(p, 0) <= now]
        if group.keyed and rules["front"]:  # Of a part, a number of messages from the front.
            other = {part for one in group.members.values() if one is not row for part in one.held.values()}
            blocked = other if rules["blocked"] else set()
            counts = Counter(part for part in map(topic.part_of, shown) if part not in blocked)
            shown = [p for part, count in counts.items() for p in topic.front(part, count, now, rules)]
        self.offers[key] = shown
        held = list(row.held) if was is None else list(was)
        for position in held:
            if position not in row.held:
                self.tell("objection: shown as claimed", group, topic, position)
        return Answer(
            "shown",
            work.process,
            work.number,
            topic.open,
            held={position: self._shown(topic, position) for position in held},
            offered={position: self._shown(topic, position) for position in shown},
        )

    def _shown(self, topic: Topic, position: Position) -> Shown:
        group = topic.own
        if not topic.has_body(position):
            self.tell("objection: lost", group, topic, position)
        doubtful = position in group.doubtful and self.rules["told"]
        return Shown(topic.record(position), doubtful, position in group.begun)

    def answer_waiting(self, now: int) -> list[tuple[Work, Answer]]:
        """Answer each WORK that waited and for which there is something now, in the order of waiting."""
        topic, answers = self.serving, list[tuple[Work, Answer]]()
        if not self.waiting or self.live is None or topic is None or topic.own.suspended:
            return answers
        for key, (work, was) in list(self.waiting.items()):
            row = topic.own.members.get(key)
            if row is None or (self.rules["ended_wait"] and work.number != row.number):
                continue
            found = self.candidates(topic, key, row, work.want, [], now)
            gone = any(position not in row.held for position in was)
            if not found and not gone:
                continue
            del self.waiting[key]
            if self.rules["waited"]:
                self.offers[key] = [*self.offers.get(key, ()), *found]
            else:
                for position in found:
                    self.claim(topic, row, position, now)
            answers.append((work, self.answer(topic, key, work, now, None if self.rules["moment"] else was)))
        return answers

    # Members that are silent, and operators

    def silent(self, key: MemberID) -> None:
        """Hear a member no more: its offers end, its claims stay."""
        group = self.live
        if group is None or self.topic is None:
            return
        self.waiting.pop(key, None)
        if self.rules["lost"]:
            for position in self.offers.pop(key, [])[:1]:
                if self.rules["suspect"] and self.topic.knows(position):
                    group.losses[position] += 1
        if not self.rules["doubt"] and key in group.members:
            self._take_back(self.topic, key)

    def _take_back(self, topic: Topic, key: MemberID) -> list[Position]:
        row = topic.own.members[key]
        held = list(row.held)
        row.held.clear()
        for position in held:
            topic.give_back(position)
        return held

    def release(self, topic: Topic, key: MemberID) -> None:
        """Give up the claims of a member."""
        for position in self._take_back(topic, key):
            topic.own.doubtful.add(position)
            self.tell("released", topic.own, topic, position)

    def copy_doubted(self, topic: Topic, key: MemberID) -> None:
        """Copy records that have been in doubt for long out of the log."""
        if self.rules["aged"]:
            topic.own.copies |= {position: topic.record(position) for position in topic.own.members[key].held}

    def redrive(self, topic: Topic) -> None:
        """Let all dead letters be tried again."""
        group = topic.own
        for position in list(group.dead):
            del group.dead[position]
            group.attempts[position] = group.losses[position] = 0
            topic.give_back(position)

    def end(self, topic: Topic, number: int) -> None:
        """End the group; the number stays."""
        if topic.group is not None and number > topic.group.number:
            topic.group = Group(number if self.rules["end_number"] else topic.group.number, [], ended=True)
            self.forget_memory()

    def suspend(self, topic: Topic) -> None:
        """Start on a restored copy."""
        self.forget_memory()
        topic.own.suspended = self.rules["suspended"]

    def resume(self, topic: Topic, *, skip: bool) -> None:
        """Let a suspended group go on; its records of that time were perhaps done already."""
        group = topic.own
        group.suspended = False
        waiting = [position for part in range(len(group.parts)) for position in list(topic.waiting(part))]
        if skip:
            for position in waiting:
                topic.take(position)
                group.delayed.pop(position, None)
                self.tell("skipped", group, topic, position)
        elif self.rules["marked"]:
            group.doubtful |= set(waiting)
        if self.rules["open"] and self.rules["marked"]:
            group.doubtful |= set(group.claimed()) | group.dead.keys()

    def forget(self, topic: Topic, key: MemberID) -> None:
        """Forget a member."""
        if self.rules["forget"] and topic.own.members[key].held:
            return
        if not self.offers.get(key) and key not in self.waiting:
            del topic.own.members[key]
