"""The acts of users: they put, subscribe, process, leave and come back, and record the results.

The processed messages of a subscriber are the rows of its own table, which its handler writes. The messages taken by
`get` are the values that `get` returned.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.applications.program import Program
from tests.simulation.applications.publisher import Publisher
from tests.simulation.applications.records import Records
from tests.simulation.applications.subscriber import Subscriber
from tests.simulation.clients import Call, ClientNode
from tests.simulation.history import History
from tests.simulation.world import World


class Application:
    """The application of one client: threads that publish, and threads that read some topics.

    All of them are flows of the one session, so they interleave wherever one of them waits.

    Args:
        topics: those that there are by now.
    """

    def __init__(self, world: World, node: ClientNode, history: History, topics: Callable[[], list[str]]) -> None:
        self.node, self.name = node, node.name
        self.program = Program(world, node, history, topics)
        self.publisher = Publisher(self.program)
        self.subscriber = Subscriber(self.program)
        self.taking = self.subscriber.taking
        self.records = Records(self.program, self.taking)
        node.on_start, node.on_end, node.on_power_cut = self._started, self._ended, self._lost_power

    def _started(self) -> None:
        if self.program.habits.bare:
            self.node.without_net()
        self.publisher.begin()
        self.subscriber.begin()

    def _ended(self, acting: Call | None) -> None:
        self.taking.ended(acting)

    def _lost_power(self) -> None:
        if not self.node.settings.power_safe:
            self.publisher.lost_power()
            self.taking.lost_power()

    def finish(self) -> None:
        """Put no new messages: finish the started puts and take the remaining messages."""
        self.program.finishing = True
        self.publisher.finish()
        self.subscriber.finish()

    def settled(self) -> str:
        """The open work, "" if there is none."""
        return self.publisher.settled() or self.subscriber.settled()
