"""Publishers: a chain of puts, each with the counter before it, several in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.groups.model.messages import Record

if TYPE_CHECKING:
    from tests.groups.model.world import World

MESSAGES_MAX: Final = 12
KEYS: Final = 4


class Publisher:
    """A client that puts, and that repeats each put until it is answered."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.counter, self.previous = world, name, 0, 0
        self.outbox: list[tuple[Record, int]] = []

    def step(self) -> None:
        random = self.world.random
        if not self.outbox or (len(self.outbox) < 3 and random.random() < 0.4):
            if self.counter < MESSAGES_MAX:
                self._begin()
            elif not self.outbox:
                return
        self._put(*random.choice(self.outbox))

    def _begin(self) -> None:
        random = self.world.random
        self.counter += 1
        key = random.randrange(KEYS)
        content = (self.name, self.counter, key)
        if self.world.poisoned and random.random() < 0.06:
            self.world.poison.add(content)
        self.outbox.append((Record(self.name, self.counter, key, content), self.previous))
        self.previous = self.counter

    def _put(self, record: Record, previous: int) -> None:
        answer = self.world.put(record, previous)
        if answer is not None:
            self.world.acknowledged |= {one.content for one, _ in self.outbox if one.counter <= answer}
            self.outbox = [row for row in self.outbox if row[0].counter > answer]

    def finish(self) -> None:
        for row in list(self.outbox):
            self._put(*row)
