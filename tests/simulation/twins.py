"""A copy of a client's directory that is opened elsewhere while the client runs.

The one that was opened last continues; chance does not decide that. After its first answer, the earlier opening gets no
message, until its user subscribes anew. It is judged in runs with one server, since two that do not hear each other
cannot know.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.simulation.applications.application import Application
from tests.simulation.clients import ClientNode
from tests.simulation.history import History
from tests.simulation.world import World


class Twin:
    """A process on a copy of a client's directory, which takes its messages for a while.

    Args:
        of: the application of the copied client.
        node: the copy; it has not been started.
    """

    def __init__(self, world: World, of: Application, node: ClientNode, history: History) -> None:
        self.world, self.of, self.node, self.history = world, of, node, history
        self.started = 0.0
        self.served: dict[str, float] = {}
        """When it took its first message of each topic."""
        node.on_start = self._started

    def _started(self) -> None:
        self.started = self.world.now
        for topic, facts in self.node.calls.subscribing.subscriptions().items():
            if facts.get("on"):
                self.node.later(0.01, partial(self._take, topic))

    def _take(self, topic: str) -> None:
        def handle(message: Any, transaction: Any) -> None:
            self.node.operations += 1
            self.served.setdefault(topic, self.world.now)

        def then(taken: Any, error: Exception | None) -> None:
            self.world.note(f"{self.node.name} took {taken} of {topic}: {type(error).__name__}")
            if error is None:
                self.node.later(0.05, partial(self._take, topic))

        self.node.call(self.node.processing.process(topic, handle, 0.5, 3), then)

    def judge(self) -> None:
        """Judge messages that the earlier opening got, of puts after the first answer to this one."""
        for topic, served in self.served.items():
            for seen in self.history.readings[self.of.name, topic].handled:
                put = self.history.puts.get(seen.body)
                opened = self.of.taking.opened.get((topic, seen.body))
                if put is None or opened is None or opened >= self.started or seen.subscribed >= self.started:
                    continue
                if put.invoked > served:
                    self.history.violate(
                        f"{self.of.name}, opened at {opened:.3f}, got {seen.body}, put at {put.invoked:.3f}, though"
                        f" {self.node.name}, opened at {self.started:.3f}, was served {topic} at {served:.3f}"
                    )
