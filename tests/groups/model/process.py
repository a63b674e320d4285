"""The process of a member with its directory: handlers that run side by side, commits, and giving back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tests.groups.model.messages import Content, MemberID, Position, Shown, Work

if TYPE_CHECKING:
    from tests.groups.model.world import World


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


class Process:
    """The state of a member, and its handlers.

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

    def crash(self) -> None:
        """End without a word; the directory stays."""
        self.up = False
        self.world.figures["crashes"] += 1
        self.world.say(self.client, "crashes")

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
                world.figures["put off"] += 1
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
        world.figures["effects after the end"] += world.era(self.subscription) < len(world.ends)
        world.say(self.client, "commits", position, record.content, "doubtful" if shown.doubtful else "")
