"""The operator of a group: looks at it, releases members, redrives dead letters, resumes it, and ends it."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from pubsub.protocol import Outcome, Status
from pubsub.protocol.groups import Describe, Group
from tests.simulation.grouping.record import Crew
from tests.simulation.history import History
from tests.simulation.tasks import Task
from tests.simulation.world import Host, World


class Overseer(Task):
    """Operates one group.

    Attributes:
        crew: the record of the group.
        open: what is still to be done in the end, "" if nothing is.
    """

    def __init__(self, world: World, host: Host, proxies: tuple[str, ...], history: History, crew: Crew) -> None:
        super().__init__(world, host, proxies, history, crew.plan.topic)
        self.crew, self.plan = crew, crew.plan
        self.open = ""

    def go(self) -> None:
        if self.finishing:
            self.open = "has not looked"
        self._describe("groups", self._seen_group)

    def _describe(self, what: str, then: Any) -> None:
        self.ask(Describe(self.name, self.topic, what, self.plan.name), partial(self._described, then))

    def _described(self, then: Any, status: Status) -> None:
        if status.outcome is not Outcome.SUCCESS:
            self._again()  # Nobody has made the group yet, or it was ended.
            return
        then(json.loads(bytes(status.body)))

    def _again(self) -> None:
        self.soon(0.3 if self.finishing else self.world.random.expovariate(2.0), self.go)

    def _seen_group(self, facts: dict[str, Any]) -> None:
        if not facts["groups"]:
            self._again()
            return
        group = facts["groups"][0]
        if group["suspended"] and (self.finishing or self._wants("resume", 0.3)):
            self._act(group, "resume")
        elif self.finishing and group["dead_letters"] and self.crew.letters_free:
            self.open = "has dead letters"
            self._describe("dead", partial(self._seen_dead, group))
        elif self._chosen("redrive") and group["dead_letters"]:
            self._act(group, "redrive")
        elif self._chosen("end") and not self.crew.unnamed:  # Such a member would make it anew, with default values.
            self._act(group, "end", force=1)
        else:
            self._describe("members", partial(self._seen_members, group))

    def _seen_dead(self, group: dict[str, Any], facts: dict[str, Any]) -> None:
        """Drop the messages that kill their handler, and redrive the others: a power cut may have used up attempts."""
        places = [one["id"] for one in facts["dead"] if one["kind"] == "dead"]
        if others := [place for place in places if place not in self.crew.poisoned]:
            self._act(group, "redrive", places=" ".join(others).encode())
        elif places:
            self._act(group, "drop", places=" ".join(places).encode())
        else:
            self._again()

    def _chosen(self, act: str) -> bool:
        return not self.finishing and self.world.random.random() < self.plan.operated.get(act, 0.0)

    def _wants(self, act: str, rate: float) -> bool:
        return self.world.random.random() < rate

    def _seen_members(self, group: dict[str, Any], facts: dict[str, Any]) -> None:
        lost = [one for one in facts["members"] if (one["client"], one["store"]) in self.crew.lost_stores]
        lost = [one for one in lost if one["claimed"] or not self.finishing]
        holding = [one for one in facts["members"] if one["claimed"]]
        if lost and (self.finishing or self._wants("lost", 0.3)):
            self.open = "has members with lost directories to release"
            self._release(group, lost[0], lost_disk=1, force=int(not self.finishing))
        elif holding and self._chosen("release"):
            self._release(group, self.world.random.choice(holding))
        elif holding and self._chosen("force"):
            self._release(group, self.world.random.choice(holding), force=1)
        else:
            self.open = ""
            self._again()

    def _release(self, group: dict[str, Any], member: dict[str, Any], **facts: int) -> None:
        self._act(group, "release", member=member["client"], store=member["store"], number=member["number"], **facts)

    def _act(self, group: dict[str, Any], action: str, **facts: Any) -> None:
        crew = self.crew
        if action == "release":
            crew.released = True
        elif action == "redrive":
            crew.redriven = True
        elif action == "end":
            crew.ended += 1
        self.world.note(f"{self.name} acts on {self.plan.name}: {action} {facts}")
        request = Group(self.name, self.topic, action, self.plan.name, group["number"], **facts)
        self.ask(request, partial(self._acted, action))

    def _acted(self, action: str, status: Status) -> None:
        self.history.counters[f"groups: {action} {status.outcome}"] += 1
        allowed = {Outcome.SUCCESS, Outcome.SUPERSEDED, Outcome.UNKNOWN}
        if action == "release":
            allowed.add(Outcome.REFUSED)  # The member is heard.
        if status.outcome not in allowed:
            self.history.violate(f"{self.name} cannot {action}: {status.outcome} {status.reason}")
        if action == "resume":
            self.crew.resumed = True
        self._again()

    def settled(self) -> str:
        """The open work, "" if there is none."""
        return f"{self.name} {self.open}" if self.open else ""
