"""The debts of groups to the service at the end of a run, while something stays open for good.

In half of the runs that are `exacting` one member stays away. The others must get everything that it has not claimed,
also its offers. Dead letters stay until their logs let go of the records. Then the member is back, and the
operator acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from pubsub.protocol.names import format_position
from pubsub.server.topic.group import DEAD, Group
from pubsub.server.topic.topic import Topic
from tests.simulation.fate import Fate
from tests.simulation.grouping.record import Crew

if TYPE_CHECKING:
    from tests.simulation.grouping.worker import Worker
    from tests.simulation.members import Server


class Absence:
    """A member that stays away, and dead letters that stay.

    Attributes:
        absent: the member that is away; None: all are to run.
    """

    def __init__(self, crews: list[Crew], workers: list[Worker], servers: list[Server], fate: Fate) -> None:
        self.crews, self.workers, self.servers = crews, workers, servers
        self.absent: Worker | None = None
        self._random = Random(f"absence {fate.groups}")
        self._occurs = fate.exacting
        for crew in crews:
            crew.letters_free = not fate.exacting

    def begin(self) -> None:
        """Have a member end, in some runs, for as long as the others have work."""
        if self._occurs and self._random.random() < 0.5:
            self.absent = self._random.choice(self.workers)
            self.absent.end("killed")
            self.absent.away = True

    def open_end(self) -> str:
        """The work of the members that are there; when there is none, the absent one is started."""
        worker = self.absent
        if worker is None:
            return ""
        for membership in worker.memberships:
            for server, topic, group in self._held(membership.crew):
                if what := self._claims(group, worker) or _left(server, topic, group, worker.client):
                    return f"group {group.name} of {topic.name} {what}, while {worker.name} is away"
        self.absent, worker.away = None, False
        worker.start()
        return f"{worker.name} was away"

    def _claims(self, group: Group, absent: Worker) -> str:
        """The claims of an absent member that another one can look up in their database."""
        others = [one for one in self.workers if one is not absent and one.database == absent.database]
        here = [one for one in others if any(each.crew.plan.name == group.name for each in one.memberships)]
        held = [key for key, member in group.members.items() if key[0] == absent.client and member.held]
        return f"has claims of {held[0]}" if absent.database and here and held else ""

    def letters(self) -> str:
        """The dead letters that hold their log; a log must let go of them before the operator acts."""
        for crew in self.crews:
            if not crew.letters_free:
                for _, topic, group in self._held(crew):
                    if what := _holding(topic, group):
                        return f"group {crew.plan.name} of {topic.name} has {what}"
                crew.letters_free = True
        return ""

    def _held(self, crew: Crew) -> Iterator[tuple[Server, Topic, Group]]:
        for server in self.servers:
            topic = server.core.state.topics.get(crew.plan.topic) if server.alive else None
            group = topic.groups.get(crew.plan.name) if topic else None
            if topic is not None and group is not None and group.row.on:
                yield server, topic, group


def _left(server: Server, topic: Topic, group: Group, client: str) -> str:
    """The first record that waits, though no absent member has claimed it, or its part."""
    context = server.core.group_memory.context(topic, group, server.host.monotonic())
    for part in group.parts:
        holder = group.holders.get(part)
        run = next(context.scan().front(part), None) if holder is None or holder[0] != client else None
        if run is not None:
            return f"has {format_position((run.log, run.low))} waiting"
    return ""


def _holding(topic: Topic, group: Group) -> str:
    for row in group.copies.values():
        log = topic.logs.get(row.log)
        if row.state == DEAD and log is not None and log.low <= row.offset:
            return f"a dead letter that holds {format_position((row.log, row.offset))}"
    return ""
