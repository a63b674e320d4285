"""A second process of a client with a database, while the first one runs and does not know it.

It is a process of the same program: its handlers write to the same table, and it puts messages of its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.history import ACKED, Put

if TYPE_CHECKING:
    from tests.simulation.applications.application import Application
    from tests.simulation.clients import ClientNode
    from tests.simulation.world import World


class Usurper:
    """One such process.

    Args:
        of: the application of the client.
        node: the process.
    """

    def __init__(self, world: World, of: Application, node: ClientNode) -> None:
        self.world, self.of, self.node = world, of, node
        node.on_start = self._started

    def _started(self) -> None:
        self.of.program.history.counters["clients with two processes"] += 1
        for topic, facts in self.node.calls.subscribing.subscriptions().items():
            if facts.get("on"):
                self.node.later(0.01, partial(self._take, topic))
        self.node.later(0.01, self._put)

    def _take(self, topic: str) -> None:
        reading = self.of.program.reading(topic)

        def then(taken: Any, error: Exception | None) -> None:
            self.world.note(f"{self.node.name} took {taken} of {topic}: {type(error).__name__}")
            self.of.program.history.counters["messages that a second process took"] += taken or 0
            self.node.later(0.02, partial(self._take, topic))

        handler = partial(self.of.taking.handle, topic, reading, node=self.node)
        self.node.call(self.node.processing.process(topic, handler, 0.2, 5), then)

    def _put(self) -> None:
        program = self.of.program
        if not program.habits.publishes:
            return
        topic, index = self.world.databases.random.choice(program.topics()), program.number()
        source = (program.name, program.life, self.node.name)
        put = program.history.put(Put(f"{program.name}:{index}", source, index, topic, self.world.now))

        def then(result: Any, error: Exception | None) -> None:
            if error is None:
                self.of.publisher.move(put, ACKED)
            self.node.later(0.1, self._put)

        self.node.call(self.node.calls.puts.put(topic, put.body.encode(), b"", None, None), then)
