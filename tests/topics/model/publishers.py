"""Publishers with an outbox and power cuts, and a sink that publishes batches again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.topics.model.messages import Answer, Publish, Put
from tests.topics.model.topic import Content

if TYPE_CHECKING:
    from tests.topics.model.world import World

ROWS_MAX: Final = 8
"""A sink's counter is the batch times this, plus the row."""


class Publisher:
    """A client that puts batches, several in flight, each with the counter before it.

    A power cut brings back an older outbox, but never an older counter. The next put is then marked.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.counter, self.previous = world, name, 0, 0
        self.outbox: list[Put] = []
        self.marked = False
        self.older: list[tuple[tuple[Put, ...], int]] = []

    def step(self) -> None:
        random, chance = self.world.random, self.world.random.random()
        if not self.outbox or (len(self.outbox) < 3 and chance < 0.3):
            self._put()
        elif chance < 0.32:  # The user discards the outbox; the mark of a discarded put goes to the next one.
            self.previous = self.outbox[0].previous
            self.marked = self.marked or any(put.marked for put in self.outbox)
            self.outbox, self.older = [], [((), self.previous)]
        elif chance < 0.35 and self.older:  # The host loses power.
            rows, self.previous = random.choice(self.older)
            self.outbox, self.older = list(rows), []
            self.counter += 100
            self.marked = True
        elif chance < 0.4:  # The disk has synced.
            self.older = self.older[-1:]
        else:
            self._settle(self.world.request(random.choice(self.outbox)))

    def _put(self) -> None:
        random = self.world.random
        first = self.counter + random.randrange(1, 3)
        self.counter = first + random.randrange(3)
        contents = tuple((self.name, counter) for counter in range(first, self.counter + 1))
        self.world.send(contents)
        self.outbox.append(Put(self.name, first, self.previous, self.marked, contents, self.world.draw_due()))
        self.previous, self.marked = self.counter, False
        self.older.append((tuple(self.outbox), self.previous))

    def _settle(self, answer: Answer | None) -> None:
        if answer is None:
            return
        for put in [put for put in self.outbox if put.contents[-1][1] <= answer.number]:
            self.world.confirm(put.contents)
            self.outbox.remove(put)
        self.older.append((tuple(self.outbox), self.previous))

    def finish(self, server: int) -> None:
        for put in list(self.outbox):
            self._settle(self.world.serve(server, put))
        if self.outbox:
            self.world.object_to("put stuck", self.name)


class Sink:
    """A Spark query: batches in order, some without rows; after a kill, rows come again in another order."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.batch = world, name, 1
        self.rows: list[Content] = []

    def step(self) -> None:
        random = self.world.random
        if not self.rows:
            self.batch += random.random() < 0.3
            first = self.batch * ROWS_MAX
            self.rows = [(self.name, row) for row in range(first, first + random.randrange(1, 4))]
            self.world.send(self.rows)
        if random.random() < 0.2:
            random.shuffle(self.rows)
        self._settle(self.world.request(Publish(self.name, self.batch, tuple(self.rows))))

    def _settle(self, answer: Answer | None) -> None:
        if answer is None or self.world.random.random() < 0.1:  # Killed before its checkpoint.
            return
        self.world.confirm(self.rows)
        self.batch, self.rows = self.batch + 1, []

    def finish(self, server: int) -> None:
        for _ in range(100):
            if self.rows:
                self._settle(self.world.serve(server, Publish(self.name, self.batch, tuple(self.rows))))
        if self.rows:
            self.world.object_to("publish stuck", self.name)
