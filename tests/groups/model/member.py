"""A member: a client of the group with its state directory, and what befalls it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from tests.groups.model.messages import Answer, Content, MemberID, Position, Shown, Subscribe, Work

if TYPE_CHECKING:
    from tests.groups.model.world import World

ROOM: Final = 4
CLOSES_MAX: Final = 3
"""Messages that a member which closes sends before it ends without an answer."""


class Hand(Enum):
    """A handler: it runs, or it has returned and its transaction is open until the claim is answered."""

    RUNS = 1
    RETURNED = 2


@dataclass
class Effect:
    """A committed effect; `undone` if a power cut took it back."""

    content: Content
    subscription: int
    doubtful: bool
    undone: bool = False


class Member:
    """One client.

    Durable are store, subscription, number, `hard` (done), `tried` (begun) and, until an fsync, `soft` (done).
    Everything that `start` sets is memory of the process.
    """

    def __init__(self, world: World, client: str) -> None:
        self.world, self.client, self.store = world, client, world.draw_number()
        self.subscription = self.number = self.process = 0
        self.hard: set[Position] = set()
        self.soft: dict[Position, Effect] = {}
        self.tried: set[Position] = set()
        self.passed: dict[str, int] = {}
        self.cut, self.up, self.closed = False, True, False
        self.start()

    @property
    def identity(self) -> MemberID:
        return self.client, self.store

    def start(self) -> None:
        """Begin a process, with an empty memory."""
        self.process += 1
        self.held: dict[Position, Shown] = {}
        self.offered: dict[Position, Shown] = {}
        self.hands: dict[Position, Hand] = {}
        self.zombies: dict[Position, Shown] = {}
        self.later: dict[Position, int] = {}
        self.gone: set[Position] = set()
        self.parts: set[int] = set()
        self.avoid: set[str] = set()
        self.sent = Work(self.identity, self.process, 0, 0)
        self.closing, self.reached = 0, False

    # What befalls it

    def crash(self) -> None:
        self.up = False
        self.world.figures["crashes"] += 1
        self.world.say(self.client, "crashes")

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

    # Giving back

    def give_back(self, position: Position) -> None:
        """Give back a message that failed, is put off, or was not begun."""
        world = self.world
        shown = self.held.get(position) or self.offered[position]
        draw = world.random.random()
        if position in self.hands or (draw < 0.5 and (position in self.held or not world.before)):
            self.begin(position, shown)
            if draw < 0.25 and world.delays:
                self.later[position] = world.random.choice((5, 20, 80))
        self.drop(position, shown)

    def drop(self, position: Position, shown: Shown) -> None:
        """Stop with a message, and in a keyed group with all behind it in the part."""
        world = self.world
        dropped = {position: shown}
        part = world.part_of(shown.record)
        if world.keyed and world.rules["rest"]:
            order = [*self.held, *(one for one in self.offered if one not in self.held)]
            behind = order[order.index(position) :]
            both = {**self.offered, **self.held}
            dropped |= {one: both[one] for one in behind if world.part_of(both[one].record) == part}
            self.parts.add(part)  # An answer under way may bring more of that part.
        claimed = {one: what for one, what in dropped.items() if one in self.held}
        self.gone |= dropped.keys()
        if not world.rules["stop"]:
            self.zombies |= claimed
        for one in dropped:
            self.held.pop(one, None)
            self.offered.pop(one, None)
            self.hands.pop(one, None)

    # Handlers

    def handle(self) -> None:
        """Let a handler begin, or return."""
        world = self.world
        if self.zombies:
            position = next(iter(self.zombies))
            self.commit(position, self.zombies.pop(position))
            return
        running = [position for position, hand in self.hands.items() if hand is Hand.RUNS]
        free = self.next_to_begin() if len(self.hands) < world.concurrency else []
        if free and (not running or world.random.random() < 0.6):
            position = free[0] if world.keyed and not world.rules["hands"] else world.random.choice(free)
            self.begin(position, self.held.get(position) or self.offered[position])
            self.hands[position] = Hand.RUNS
            world.figures["side by side"] += len(self.hands) > 1
            self.check_hands()
        elif running:
            self.finish(world.random.choice(running))

    def next_to_begin(self) -> list[Position]:
        """Return the messages whose handler may begin; of a keyed group the first one of each part without a hand."""
        world = self.world
        both = {**self.held, **({} if world.before else self.offered)}
        if not world.keyed or not world.rules["hands"]:
            return [position for position in both if position not in self.hands]
        busy = {world.part_of(both[one].record) for one in self.hands if one in both}
        first = dict[int, Position]()
        for position, shown in both.items():
            first.setdefault(world.part_of(shown.record), position)
        return [position for part, position in first.items() if part not in busy]

    def check_hands(self) -> None:
        both = {**self.offered, **self.held}
        parts = [self.world.part_of(both[one].record) for one in self.hands]
        if self.world.keyed and len(set(parts)) < len(parts):
            self.world.object_to("two handlers of a part", self.client)

    def begin(self, position: Position, shown: Shown) -> None:
        """Count the attempt in a commit before the handler."""
        world = self.world
        if world.rules["suspect"]:
            self.tried.add(position)
        one = (world.era(self.subscription), shown.record.content)
        again = one in world.begun and one not in world.released  # Of two, one has the mark there.
        if world.before and position not in self.hands:
            if again and not shown.doubtful and not shown.begun:
                world.object_to("begun twice, untold", one)
            world.begun.add(one)
        world.say(self.client, "begins", position, shown)

    def finish(self, position: Position) -> None:
        """Let a handler return: it commits, or its claim is asked for by the next WORK."""
        world = self.world
        shown = self.held.get(position) or self.offered[position]
        if shown.record.content in world.poison or (not world.healthy and world.random.random() < 0.03):
            self.crash()
        elif position in self.held:
            del self.hands[position]
            if self.is_first(position, self.held):
                self.commit(position, self.held.pop(position))
        elif world.rules["claim"]:
            self.hands[position] = Hand.RETURNED
        else:
            del self.hands[position]
            self.commit(position, self.offered.pop(position))

    def is_first(self, position: Position, held: dict[Position, Shown]) -> bool:
        """Return whether nothing of its part is in front of a message."""
        world = self.world
        if not world.keyed or not world.rules["front"]:
            return True
        part = world.part_of(held[position].record)
        return next(one for one, what in held.items() if world.part_of(what.record) == part) == position

    def commit(self, position: Position, shown: Shown) -> None:
        world, record = self.world, shown.record
        self.tried.discard(position)
        if not world.rules["nofilter"] and record.counter <= self.passed.get(record.publisher, 0):
            self.hard.add(position)
            return
        self.passed[record.publisher] = max(record.counter, self.passed.get(record.publisher, 0))
        self.soft[position] = effect = Effect(record.content, self.subscription, shown.doubtful)
        world.effects.append(effect)
        world.say(self.client, "commits", position, record.content, "doubtful" if shown.doubtful else "")

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
