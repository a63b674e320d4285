"""What members of a pair have said, and that no other member contradicts it.

    back       what a client was told (a position, the last counter of a publisher) a primary of a later term still has
    deposed    what leaves was computed before another member of a higher term served; but for what rests on nothing
               that is stored, and waits for nobody (`Outgoing.waits`)
    one        in one term one member answers

Nothing here knows how members agree; only that each begins to serve with a core, and what it says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pubsub.server.core import ServerCore

if TYPE_CHECKING:
    from tests.simulation.history import History
    from tests.simulation.members import MemberNode
    from tests.simulation.world import World


@dataclass(slots=True)
class _Held:
    """What a server held of a topic when it computed something.

    Attributes:
        log: which it wrote to.
        end: where that ended.
        last: the highest counter of each publisher.
    """

    log: str
    end: int
    last: dict[int, int]


@dataclass(slots=True)
class _Server:
    """A server with members.

    Attributes:
        answered: who answered, by term.
        began: (term, member, when) of each that began to serve.
        topics: the most that was said of each.
        names: of publishers, by number.
    """

    answered: dict[int, str] = field(default_factory=dict)
    began: list[tuple[int, str, float]] = field(default_factory=list)
    topics: dict[str, _Held] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)


class Told:
    """All that the members of one run's pairs said.

    Args:
        alone: whether a server keeps what it holds: no other one is there to give it to.
    """

    def __init__(self, world: World, history: History, alone: bool) -> None:
        self._world, self._history, self._alone = world, history, alone
        self.counters: Counter[str] = Counter()
        self._servers: dict[str, _Server] = {}
        self._computed: dict[int, tuple[Any, float, dict[str, _Held], int]] = {}
        """What was computed and not sent yet: the message, when, and what was held then."""

    def forget(self, server: str) -> None:
        """What was said counts no more: operators gave it up."""
        self._servers[server] = _Server(began=self._servers[server].began if server in self._servers else [])

    def begins(self, node: MemberNode, core: ServerCore) -> None:
        """A member begins to serve with what it has."""
        server = self._servers.setdefault(node.server, _Server())
        term = core.state.incarnation
        later = any(one > term for one, _, _ in server.began)
        if any(one != node.name for _, one, _ in server.began[-1:]):
            self.counters["failovers"] += 1
        server.began.append((term, node.name, self._world.now))
        if (
            later
        ):  # It slept since it was chosen, and lacks what the other one said. Nothing that it computes may leave.
            self.counters["late primaries"] += 1
            return
        who = f"{node.name}, in term {term},"
        if core.state.publishers.names[: len(server.names)] != server.names:
            self._history.violate(f"{who} has other publishers than were told before")
        for name, told in server.topics.items():
            topic = core.state.topics.get(name)
            if name in self._history.given_up:
                continue
            if topic is None or told.log not in topic.logs:
                if self._alone and topic is None:
                    self._history.violate(f"{who} holds {name} no more")
                continue
            end = topic.logs[told.log].end
            if end < told.end:
                self._history.violate(f"{who} went back: {told.log} of {name} ended at {told.end}, and at {end} now")
            for publisher, counter in told.last.items():
                if topic.last.get(publisher, counter) < counter:
                    what = f"counter {publisher} of {name} was {counter}, and is {topic.last[publisher]} now"
                    self._history.violate(f"{who} went back: {what}")

    def computed(self, core: ServerCore, out: list[Any]) -> None:
        """What a loop has to say, before it may leave."""
        said = [one for one in out if one.waits]
        if not said:
            return
        held = {
            name: _Held(topic.open.id, topic.open.end, dict(topic.last))
            for name, topic in core.state.topics.items()
            if not topic.unreadable
        }
        for one in said:
            self._computed[id(one)] = (one, self._world.now, held, len(core.state.publishers.names))

    def left(self, node: MemberNode, core: ServerCore, out: list[Any]) -> None:
        """What leaves now."""
        server, term = self._servers[node.server], core.state.incarnation
        for one in out:
            if not one.waits:
                continue
            _, when, held, names = self._computed.pop(id(one))
            if server.answered.setdefault(term, node.name) != node.name:
                self._history.violate(f"{node.name} and {server.answered[term]} both answer in term {term}")
            for later, other, since in server.began:
                if later > term and other != node.name and since < when:
                    self._history.violate(f"{node.name} answers in term {term}, though {other} serves in {later}")
            if names > len(server.names):
                server.names = core.state.publishers.names[:names]
            for name, told in held.items():
                known = server.topics.get(name)
                if known is None or known.log != told.log or known.end <= told.end:
                    server.topics[name] = told
