"""A client's name, and the directories that it has one after the other, or at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.server.continuing.messages import Answer, Get, Subscribe
from tests.server.continuing.topic import SKEW, Content, Place, Record

if TYPE_CHECKING:
    from tests.server.continuing.world import World

DIRECTORIES_MAX: Final = 64
"""A number is a clock and, below it, which directory it is of."""


class Line:
    """What is promised to a name since it last began at the end, whichever directory takes it.

    Args:
        taken: what the directory that begins it has taken before.
    """

    def __init__(self, taken: set[Content] | None = None) -> None:
        self.taken, self.got = set(taken or ()), set(taken or ())
        self.high: Counter[str] = Counter()
        self.invoked: int | None = None
        self.answered: int | None = None
        self.before: Line | None = None


class Name:
    """A client's name: its directory, earlier ones that are still alive, and what they took."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.line, self._made = world, name, Line(), 0
        self.others: list[Directory] = []
        self.current = self._new()

    def _new(self) -> Directory:
        self._made += 1
        return Directory(self, self._made)

    def step(self) -> None:
        """One of its directories does something, or the present one is lost."""
        random = self.world.random
        if random.random() < 0.02:
            self.lose()
        elif self.others and random.random() < 0.3:
            random.choice(self.others).step()
        else:
            self.current.step()

    def lose(self) -> None:
        """The container is replaced; the earlier one may live on for a while."""
        old = self.current
        self.hand_over()
        if old.wants and self.world.random.random() < 0.4:
            self.others.append(old)
        self.current = self._new()
        self.world.figures["directories lost"] += 1

    def hand_over(self) -> None:
        """Another directory goes on; where the last one's change has no answer, either may be so."""
        old, line = self.current, self.line
        if not old.intents or (old.wants and (old.settled or not old.fresh)):
            return
        parts = [line, *([line.before] if line.before and not old.settled else [])]
        self.line = Line()
        for part in parts:
            self.line.taken |= part.taken
            self.line.got |= part.got
        if not old.settled:
            self.line.invoked = min((part.invoked for part in parts if part.invoked is not None), default=None)

    def finish(self, server: int) -> None:
        """Take all that is there, by the present directory or by one more, and see that nothing is missing."""
        world = self.world
        if world.random.random() < 0.5:
            self.lose()
        one = self.current
        for _ in range(3):
            if not one.wants or one.dead:
                one.change(True, server)
            for _ in range(50):
                if not one.settled:
                    one.ask(server)
            if not one.settled:
                world.violations.append(("stuck", self.name))
                return
            came = 1
            while came:
                came = one.receive(one.fetch(server))
                one.store(len(one.fetched))
            if not one.dead:
                break
        if one.dead:
            world.violations.append(("superseded", self.name))
        for other in self.others:
            other.store(len(other.fetched))
        since = self.line.answered
        for content, sent in world.puts.items():
            if since and sent.answered and sent.invoked > since and content not in self.line.got:
                world.violations.append(("lost", self.name, f"{content}"))


class Directory:
    """One state directory under a name: its numbers, its place, and the last counters that it has taken."""

    def __init__(self, owner: Name, index: int) -> None:
        self.owner, self.world, self.index, self.line = owner, owner.world, index, owner.line
        self.count, self.number, self.intents = self.world.clock, 0, 0
        self.wants = self.settled = self.fresh = self.dead = False
        self.last: Place = ("", 0)
        self.fetched: list[tuple[Place, Record, bool]] = []
        self.passed: Counter[str] = Counter()
        self.mine: set[Content] = set()

    @property
    def is_current(self) -> bool:
        """Whether its name has no later one."""
        return self is self.owner.current

    def step(self) -> None:
        """Subscribe, leave, take, or die and lose what was prefetched."""
        random, chance = self.world.random, self.world.random.random()
        if self.dead:
            if chance < 0.05:
                self._take_back()
        elif self.intents and not self.settled:
            if self.is_current:
                self.ask()
        elif not self.wants:
            if chance < 0.3 and self.is_current:
                self.change(True)
        elif chance < 0.02 and self.is_current:
            self.change(False)
        elif chance < 0.05:
            self.fetched = []
        elif chance < 0.4 and self.fetched:
            self.store(random.randrange(1, len(self.fetched) + 1))
        else:
            self.receive(self.fetch())

    def _take_back(self) -> None:
        """Its user subscribes again."""
        owner = self.owner
        if not self.is_current:
            owner.hand_over()
            owner.others.remove(self)
            owner.others.append(owner.current)
            owner.current = self
        self.change(True)

    def change(self, on: bool, server: int | None = None) -> None:
        """A new intent."""
        owner, rules = self.owner, self.world.rules
        if on:
            if self.dead:
                self.fresh = not rules["retake"]
            else:
                self.fresh = rules["after_off"] if self.intents else self.world.random.random() < 0.15
            if not self.dead and (self.fresh or self.intents):  # From now on: nothing of before.
                before, owner.line = owner.line, Line(self.mine if self.intents else None)
                owner.line.before = None if self.intents else before
            self.line = owner.line
            if self.line.invoked is None:
                self.line.invoked = self.world.now()
        self.wants, self.settled, self.dead, self.fetched = on, False, False, []
        self.intents += 1
        self.ask(server)

    def ask(self, server: int | None = None) -> None:
        """The next transmission of the intent: a number of its own; told of a higher one it goes above."""
        self.count = max(self.count + 1, self.world.clock)
        number = self.count * DIRECTORIES_MAX + self.index % DIRECTORIES_MAX
        asked = Subscribe(self.owner.name, number, self.wants, self.fresh)
        answer = self.world.request(asked) if server is None else self.world.serve(server, asked)
        if answer is None:
            return
        if answer.outcome == "superseded":
            self.count = max(self.count, answer.number // DIRECTORIES_MAX + 1)
            return
        self.settled, self.last, self.number = True, answer.acknowledged, answer.number
        if self.wants and self.line.answered is None:
            self.line.answered = self.world.now()

    def fetch(self, server: int | None = None) -> Answer | None:
        """Ask for what comes behind the prefetch; what was stored is acknowledged with that."""
        after = self.fetched[-1][0] if self.fetched else self.last
        get = Get(self.owner.name, self.number, self.last, after, self.world.random.randrange(1, 5))
        return self.world.request(get) if server is None else self.world.serve(server, get)

    def receive(self, answer: Answer | None) -> int:
        """How many records came."""
        if answer is None:
            return 0
        if answer.outcome == "superseded":
            self.dead, self.fetched = True, []
        elif answer.outcome == "behind":
            self.world.violations.append(("behind", self.owner.name))
        self.fetched += answer.found
        return len(answer.found)

    def store(self, count: int) -> None:
        """Process so many, effect and place at once; the last counters drop what was taken before."""
        for place, record, doubtful in self.fetched[:count]:
            self.last = place
            publisher, counter = record.content
            if counter > self.passed[publisher]:
                self.passed[publisher] = counter
                self._take(record.content, doubtful)
        del self.fetched[:count]

    def _take(self, content: Content, doubtful: bool) -> None:
        world, line, (publisher, counter) = self.world, self.line, content
        if doubtful:
            world.figures["marked"] += 1
        else:
            if content in line.taken:
                world.violations.append(("doubled", self.owner.name, f"{content}"))
            elif self.is_current and counter < line.high[publisher]:
                world.violations.append(("order", self.owner.name, f"{content}"))
            line.taken.add(content)
        line.got.add(content)
        self.mine.add(content)
        if self.is_current:
            line.high[publisher] = max(line.high[publisher], counter)
        sent = world.puts[content]
        if sent.answered and line.invoked is not None and max(sent.answered, sent.taken) < line.invoked - 2 * SKEW:
            world.violations.append(("early", self.owner.name, f"{content}"))
