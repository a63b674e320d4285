"""A table's view: the latest record of each key, read along the history by a process without a subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.topics.model.messages import Answer, Read
from tests.topics.model.retention import fold, is_tombstone, key_of
from tests.topics.model.topic import Content, Position

if TYPE_CHECKING:
    from tests.topics.model.world import World


class View:
    """One view; it names the history that it has read, and how many tombstones had gone when it began."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self._begin()

    def _begin(self) -> None:
        self.table: dict[int, Content] = {}
        self.position: Position | None = None
        self.token, self.began = "", 0

    def step(self) -> None:
        self._receive(self.world.request(self._read(self.world.random.randrange(1, 6))))

    def _read(self, limit: int) -> Read:
        return Read(self.token, self.began, self.position, limit)

    def _receive(self, answer: Answer | None) -> bool:
        """Return True if there may be more."""
        if answer is None:
            return False
        if answer.outcome == "again":
            self._begin()
            self.world.figures["views begun anew"] += 1
            return True
        if self.position is None:
            self.began = answer.number
        for position, record in answer.items:
            assert record is not None
            self.position, self.token = position, answer.token
            if is_tombstone(record.content):
                self.table.pop(key_of(record.content), None)
            else:
                self.table[key_of(record.content)] = record.content
        return bool(answer.items)

    def finish(self, server: int) -> None:
        while self._receive(self.world.serve(server, self._read(5))):
            pass
        topic = self.world.topics[server]
        assert topic is not None
        if self.table != fold(topic.shown()):
            self.world.object_to("view differs", self.name)
        elif self.table != fold(topic.ever_shown()):
            self.world.object_to("compaction changed the view", self.name)
