"""A member: a client of the group with its state directory, and what befalls it."""

from __future__ import annotations

from typing import Final

from tests.groups.model.messages import Answer, Position, Shown, Subscribe, Work
from tests.groups.model.process import Hand, Process

ROOM: Final = 4
CLOSES_MAX: Final = 3
"""Messages that a member which closes sends before it ends without an answer."""


class Member(Process):
    """One client of the group."""

    # What befalls it

    def lose_power(self) -> None:
        for effect in self.soft.values():
            effect.undone = True
        self.soft.clear()
        self.tried.clear()  # Those rows were not fsynced. The next start knows that the host lost power.
        self.cut = self.world.rules["cut"]
        self.crash()

    def lose_disk(self) -> None:
        self.store, self.subscription = self.world.draw_number(), 0
        self.hard, self.soft, self.tried, self.cut, self.passed = set(), {}, set(), False, {}
        self.crash()

    def open(self) -> None:
        """Start a process from the directory."""
        self.up, self.closed = True, False
        self.start()
        rules = self.world.rules
        if rules["process"]:
            self.next_number()
        else:
            self.process -= 1
            self.sent = Work(self.identity, self.process, self.subscription, self.number)
        self.fsync()
        if not rules["settle"]:
            self.hard.clear()
        if not rules["begun"]:
            self.tried.clear()

    def next_number(self) -> int:
        """Draw a number that no message had before; the allocator is durable."""
        self.number = max(self.number + 1, self.world.draw_number())
        return self.number

    def fsync(self) -> None:
        self.hard |= self.soft.keys()
        self.soft.clear()

    def step(self) -> None:
        world, chance = self.world, self.world.random.random()
        if not self.up:
            if chance < 0.3:
                self.open()
        elif chance < 0.015:
            self.crash()
        elif chance < 0.025:
            self.lose_power()
        elif chance < 0.03 and world.disks:
            self.lose_disk()
        elif self.closing or (chance < 0.045 and world.closing):
            self.close()
        elif chance < 0.08:
            self.fsync()
        elif chance < 0.12 and (self.held or self.offered):
            self.give_back(world.random.choice([*self.held, *self.offered]))
        elif chance < 0.6 and (self.held or self.offered or self.zombies):
            self.handle()
        else:
            self.send()

    # Speaking

    def work(self, want: int, *, early: bool, wait: bool = False) -> Work:
        """Make the next WORK."""
        world, rules = self.world, self.world.rules
        done = frozenset(self.hard if rules["fsync"] else self.hard | self.soft.keys())
        if not rules["repeat"]:
            self.hard.clear()
        claims = [position for position, hand in self.hands.items() if hand is Hand.RETURNED]
        if world.before:
            claims += [position for position in self.offered if position not in claims]
        self.sent = Work(
            self.identity,
            self.process,
            self.subscription,
            self.next_number(),
            done=done,
            keep=frozenset(self.held) | frozenset(self.soft if rules["kept"] else ()),
            offered=frozenset(self.offered),
            claims=tuple(claims),
            tried=frozenset(self.tried - self.hands.keys()),
            later=dict(self.later),
            cut=self.cut,
            want=want,
            early=early or world.before,
            wait=wait,
            leaving=self.closing > 0,
            avoid=frozenset(self.avoid),
        )
        self.gone, self.parts = set(), set()
        return self.sent

    def send(self) -> None:
        """Say all and ask for more."""
        draw = self.world.random
        if not self.subscription:
            self.subscribe()
            return
        room = ROOM - len(self.held) - len(self.offered)
        want = draw.randrange(max(1, room + 1)) if room > 0 else 0
        wait = self.world.polling and want > 0 and draw.random() < 0.6
        self.world.send(self.work(want, early=draw.random() < 0.5, wait=wait), self)

    def subscribe(self) -> None:
        number, earliest = self.next_number(), self.world.random.random() < 0.7
        self.world.send(Subscribe(self.identity, self.process, number, earliest, frozenset(self.avoid)), self)

    def close(self) -> None:
        """End the handlers, tell all, and end the process after the answer."""
        world = self.world
        if not self.subscription:
            self.up = False
            return
        if not world.rules["close"]:
            self.up, self.closed = False, True
            return
        for position in list(self.held):
            if position in self.held:
                self.drop(position, self.held[position])
        self.hands, self.offered = {}, {}
        self.fsync()
        self.closing += 1
        if self.closing > CLOSES_MAX:
            self.up = False  # Nobody answers. The claims stay in doubt until the next start.
            return
        world.send(self.work(0, early=False), self)
        if not world.rules["close_answer"] and self.up:
            self.up, self.closed = False, True

    # Listening

    def receive(self, answer: Answer) -> None:
        """Take an answer."""
        rules = self.world.rules
        if not self.up or answer.process != self.process:
            return
        if answer.outcome in ("joined", "busy"):
            if answer.outcome == "joined" and not self.subscription and answer.number == self.number:
                self.subscription = answer.subscription
            elif answer.outcome == "busy":
                self.avoid_log(answer.log)
            return
        if answer.number != self.number and (rules["last"] or answer.number > self.number):
            return
        if answer.outcome == "unknown":
            self.avoid_log(answer.log)
        elif answer.outcome == "superseded":
            if answer.number == self.number:
                self.leave_group()
        else:
            self.reached = True
            self.avoid.clear()
            self.take(answer)

    def avoid_log(self, log: str) -> None:
        if self.world.rules["avoid"]:
            self.avoid = set() if log in self.avoid else self.avoid | {log}

    def leave_group(self) -> None:
        """Stop: the group was ended."""
        closing = self.closing
        self.subscription, self.hard, self.soft, self.tried, self.cut = 0, set(), {}, set(), False
        self.world.figures["superseded"] += 1
        self.process -= 1
        self.start()
        if closing:
            self.up = False

    def take(self, answer: Answer) -> None:
        """Act on what the answer shows as claimed and as offered."""
        sent, rules = self.sent, self.world.rules
        last = answer.number == self.number
        if last:
            self.hard -= sent.done
            self.tried -= sent.tried
            self.later = {one: delay for one, delay in self.later.items() if one not in sent.later}
            self.cut &= not sent.cut
        known = self.hard | self.soft.keys() | self.gone | (sent.done if last else set())
        held = {one: what for one, what in answer.held.items() if self._is_news(one, what, known)}
        offered = {one: what for one, what in answer.offered.items() if self._is_news(one, what, known)}
        before = {**self.offered, **self.held}
        self.held, self.offered = held, {one: what for one, what in offered.items() if one not in answer.held}
        granted = any(one in held for one in sent.claims)
        for position, hand in list(self.hands.items()):
            if hand is Hand.RETURNED and (position in sent.claims or position in held):
                del self.hands[position]
                mine = position in held and self.is_first(position, held)
                if mine or (granted and not rules["own"]):
                    self.commit(position, held.get(position) or before[position])
                    self.held.pop(position, None)
                    self.offered.pop(position, None)
            elif position not in self.held and position not in self.offered:
                del self.hands[position]  # Rolled back: it is another member's, or done.
        if self.closing and last:
            self.up, self.closed = False, True
            self.world.figures["closed"] += 1

    def _is_news(self, position: Position, shown: Shown, known: set[Position]) -> bool:
        return position not in known and self.world.part_of(shown.record) not in self.parts

    # The end

    def settle(self) -> bool:
        """Work in a healthy world; return whether something happened."""
        world = self.world
        if not self.up:
            world.hear_no_more(self)
            self.open()
        self.closing = 0
        before = len(world.effects), len(world.dead)
        self.speak(3, early=world.random.random() < 0.7)
        for _ in range(8):
            if self.up and (self.held or self.offered or self.zombies):
                self.handle()
            if self.up and Hand.RETURNED in self.hands.values():
                self.speak(0, early=False)
        if not self.up:
            return True
        self.fsync()
        self.speak(0, early=True)
        return (len(world.effects), len(world.dead)) != before

    def speak(self, want: int, *, early: bool) -> None:
        self.fsync()
        if not self.subscription:
            self.subscribe()
        if self.subscription:
            self.world.send(self.work(want, early=early), self)
