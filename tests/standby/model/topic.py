"""One topic: the sum of a store's entries. And another server, which takes or gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.standby.model.node import Node
from tests.standby.model.rules import Answer, Change, Request

if TYPE_CHECKING:
    from tests.standby.model.world import World


class Topic:
    """The sum of a store's entries: one topic."""

    __slots__ = ("frozen", "given", "held", "last", "log", "subs")

    def __init__(self, held: bool) -> None:
        self.log, self.last, self.subs, self.frozen, self.given, self.held = [], {}, {}, False, False, held

    def copy(self) -> Topic:
        new = Topic(self.held)
        new.log, new.last, new.subs = list(self.log), dict(self.last), dict(self.subs)
        return new

    def apply(self, op: Change) -> None:
        kind = op[0]
        if kind == "put":
            self.log.append(op[1:3])
            self.last[op[1]] = op[2]
        elif kind == "sub":
            self.subs[op[1]] = op[2:]
        elif kind == "freeze":
            self.frozen = True
        elif kind == "given":
            self.given = True
        elif kind == "join":
            self.log, self.last, self.subs, self.held = list(op[1].log), dict(op[1].last), dict(op[1].subs), True

    def serve(self, request: Request) -> tuple[Answer, Change | None]:
        """The answer, and the change to be made, if any."""
        if not self.held or self.frozen or self.given:
            return ("moved",), None
        kind, name = request[:2]
        if kind == "put":
            _, _, counter, previous = request
            last = self.last.get(name, 0)
            if counter <= last:
                return ("taken", last, len(self.log)), None
            if previous > last:
                return ("gap", last), None
            return ("taken", counter, len(self.log) + 1), ("put", name, counter)
        if kind == "sub":
            _, _, number, on = request
            entry = self.subs.get(name)
            if entry and number < entry[0]:
                return ("lower", entry[0]), None
            if entry and number == entry[0]:
                return ("subscribed", number, entry[2], len(self.log)), None
            return ("subscribed", number, len(self.log), len(self.log)), ("sub", name, number, on, len(self.log))
        _, _, number, last = request
        entry = self.subs.get(name)
        if not entry or entry[0] != number or not entry[1]:
            return ("unknown",), None
        if last > len(self.log):
            return ("behind",), None
        return ("records", number, last, tuple(self.log[last : last + 4]), len(self.log)), None


class Elsewhere(Node):
    """Another server, which never fails: gives the topic to the pair, or is given it."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "R")
        self.state = Topic(True) if world.move == "take" else None

    def start(self, first: bool = False) -> None:
        self.up = True

    def on_asked(self, proxy: str, client: str, number: int, request: Request) -> None:
        if self.state is None:
            self.send(proxy, "reply", client, number, ("moved",))
            return
        answer, op = self.state.serve(request)
        if op:
            self.state.apply(op)
        self.send(proxy, "reply", client, number, answer)

    def freeze(self) -> None:
        if self.state and not self.state.frozen:
            self.state.frozen = True
            self.offer()

    def offer(self) -> None:
        if self.state and self.state.frozen and not self.state.given:
            for name in "AB":
                self.send(name, "commit", self.state.copy())
            self.world.timer(self, 12, self.offer)

    def on_done(self, source: str) -> None:
        if self.state:
            self.state.given = True

    def on_commit(self, source: str, payload: Topic) -> None:
        if self.state is None:
            self.state = payload.copy()
            self.state.held = True
        self.send(source, "done")
