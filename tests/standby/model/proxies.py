"""A proxy of the model: an acceptor of the register, and a router."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.standby.model.node import Node
from tests.standby.model.rules import PATIENCE, Accepted, Answer, Request, Value

if TYPE_CHECKING:
    from tests.standby.model.world import World


class Proxy(Node):
    """An acceptor of the register, and a router: the primary with the highest term that announced itself here."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.disk, self.memory, self.new, self.identity = [0, None], None, False, 0
        self.route_disk = (0, 0)

    def found(self, value: Value) -> None:
        """The register begins with this value."""
        self.disk = [0, (0, value)]

    def lose_disk(self) -> None:
        """All content of its disk is gone."""
        self.disk, self.new, self.route_disk = [0, None], True, (0, 0)
        self.identity += 1

    def said(self) -> Accepted | None:
        """Its last accepted value; None if it has no vote."""
        return None if self.new else self.disk[1]

    def start(self, first: bool = False) -> None:
        if self.up or self.life >= 1000:
            return
        self.up = True
        self.memory = list(self.disk)
        self.route, self.change, self.link, self.heard, self.holds = (
            *self.route_disk,
            "",
            -99,
            self.world.move != "take",
        )
        self.beaten = 0

    def keep(self, promised: int, accepted: Accepted | None) -> None:
        self.memory = [promised, accepted]
        if self.world.rules["durable"] or self.world.random.random() < 0.5:
            self.disk = list(self.memory)

    def on_prepare(self, source: str, ballot: int, token: int, kind: str) -> None:
        promised, accepted = self.memory
        if self.new and self.world.rules["amnesia"]:
            self.send(source, "new", self.identity)
            return
        if (
            kind == "takeover"
            and self.world.rules["sticky"]
            and self.link != source
            and self.world.now - self.heard < PATIENCE
        ):
            return
        if ballot <= promised and self.world.rules["promise"]:
            self.send(source, "refused", (ballot, token), promised)
            return
        self.keep(max(ballot, promised), accepted)
        self.send(source, "promised", (ballot, token), accepted, self.identity)

    def on_accept(self, source: str, ballot: int, token: int, value: Value) -> None:
        promised, accepted = self.memory
        if self.new and self.world.rules["amnesia"]:
            return
        if ballot < promised and self.world.rules["promise"]:
            self.send(source, "refused", (ballot, token), promised)
            return
        if accepted and accepted[0] > ballot:
            return
        self.keep(max(ballot, promised), (ballot, value))
        if not self.world.rules["amnesia"]:
            self.new = False
        self.send(source, "accepted", (ballot, token))

    def on_read(self, source: str, token: int) -> None:
        if not self.new:
            self.send(source, "told", token, *self.memory)

    def on_install(self, source: str, identity: int, promised: int, accepted: Accepted | None) -> None:
        if self.new and identity == self.identity:
            self.new = False
            self.memory = self.disk = [promised, accepted]
            self.world.say(self.name, "votes again", promised, accepted)

    def on_beat(self, source: str, term: int) -> None:
        if term >= self.beaten:
            self.beaten, self.heard = term, self.world.now
            self.link = self.link or source
        if term < self.route:
            self.send(source, "deposed", self.route)
        if self.new:
            self.send(source, "here", self.identity)

    def on_announce(self, source: str, term: int, change: int, holds: bool) -> None:
        if term < self.route or (term == self.route and change < self.change):
            return
        if change < self.change:
            self.world.object("called stale", source, change, self.change)
        self.route, self.change, self.link, self.holds = term, change, source, holds
        self.route_disk = (term, change)
        self.heard = self.world.now

    def on_request(self, client: str, number: int, request: Request) -> None:
        if not self.holds:
            self.send("R", "asked", client, number, request)
        elif self.link:
            self.send(self.link, "asked", client, number, request)

    def on_given(self, source: str) -> None:
        pass

    def on_reply(self, source: str, client: str, number: int, answer: Answer) -> None:
        self.send(client, "answer", number, answer)
