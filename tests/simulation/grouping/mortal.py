"""Members whose process is killed at the places that matter: within a handler, and around its commit."""

from __future__ import annotations

from typing import Any

from pubsub.client.core.message import Message
from pubsub.protocol.group_bodies import REDELIVER
from tests.simulation.clients import ClientNode
from tests.simulation.disk import Killed
from tests.simulation.grouping.record import Crew, Crews
from tests.simulation.world import Host, World

IN_HANDLER, CLAIMED, COMMITTED = "in the handler", "between claim and commit", "between commit and done"


class MortalNode(ClientNode):
    """A client of groups whose process can be killed at a place.

    Attributes:
        kill_at: the place where its process is to be killed; "": nowhere.
        finishing: its handlers fail no more.
    """

    def __init__(self, world: World, host: Host, proxies: tuple[str, ...], crews: Crews) -> None:
        super().__init__(world, host, proxies, power_safe=False)
        self.crews, self.history = crews, crews.history
        self.kill_at, self.finishing = "", False

    def _watch_commits(self, source: Any) -> None:
        handled = source.handled

        def seen(attempt: Any) -> None:
            handled(attempt)
            self._maybe_killed(COMMITTED)

        source.handled = seen

    def _maybe_killed(self, place: str) -> None:
        if self.kill_at == place and not self.world.over:
            self._killed(place)

    def _killed(self, place: str) -> None:
        self.kill_at = ""
        self.world.note(f"{self.name} is killed {place}")
        self.host.disk.end_process()
        raise Killed

    def _killed_by(self, message: Message, crew: Crew) -> None:
        """A message kills the process; each attempt is told, so that it becomes a dead letter (GR17, GR23)."""
        body = message.body.decode()
        crew.poisoned.add(message.id)
        crew.killed_last += self.finishing
        crew.kills[body] += 1
        self.crews.counters["group handlers killed by a message"] += 1
        most = crew.plan.wish.attempts + len(crew.plan.members) + crew.untold  # Some are told only when all are back.
        given_up = crew.released or crew.plan.wish.on_lost == REDELIVER  # Then some are told while another one has it.
        if crew.kills[body] > most and not (crew.redriven or crew.ended or crew.resumed or given_up):
            self.history.violate(f"{body} has killed {crew.kills[body]} processes of group {crew.plan.name}")
        self._killed(IN_HANDLER)
