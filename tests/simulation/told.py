"""The answers of members of a pair: no other member contradicts them.

    back       a primary of a later term still has the answered state (a position, the last counter of a publisher)
    deposed    a message was computed before another member of a higher term served, except for one that depends on
               no stored state, and waits for no standby (`Outgoing.waits`)
    one        in one term one member answers

The checks know nothing of the agreement of members; only the core with which each begins to serve, and its answers.
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
    """The state of a topic at a server when it computed an answer.

    Attributes:
        log: the log to which it wrote.
        end: the end of that log.
        last: the highest counter of each publisher.
    """

    log: str
    end: int
    last: dict[int, int]


@dataclass(slots=True)
class _Server:
    """A server with members.

    Attributes:
        answered: the answering member, by term.
        began: (term, member, when) of each that began to serve.
        topics: the highest answered state of each.
        names: of publishers, by number.
    """

    answered: dict[int, str] = field(default_factory=dict)
    began: list[tuple[int, str, float]] = field(default_factory=list)
    topics: dict[str, _Held] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)


class Told:
    """All answers of the members of one run's pairs.

    Args:
        alone: whether a server keeps its topics: there is no other one to give them to.
    """

    def __init__(self, world: World, history: History, alone: bool) -> None:
        self._world, self._history, self._alone = world, history, alone
        self.counters: Counter[str] = Counter()
        self._servers: dict[str, _Server] = {}
        self._computed: dict[int, tuple[Any, float, dict[str, _Held], int]] = {}
        """Computed and unsent answers: the message, the time, and the state at that time."""

    def forget(self, server: str) -> None:
        """Earlier answers do not count any more: operators abandoned the topic."""
        self._servers[server] = _Server(began=self._servers[server].began if server in self._servers else [])

    def begins(self, node: MemberNode, core: ServerCore) -> None:
        """A member begins to serve with its state."""
        server = self._servers.setdefault(node.server, _Server())
        term = core.state.incarnation
        later = any(one > term for one, _, _ in server.began)
        if any(one != node.name for _, one, _ in server.began[-1:]):
            self.counters["failovers"] += 1
        server.began.append((term, node.name, self._world.now))
        if later:  # It was paused since it was chosen, and lacks the other one's answers. It may send none.
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
        """The answers of a loop, before they may be sent."""
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
        """The messages that are sent now."""
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
