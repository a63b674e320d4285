"""A process on a copy of the store, as primary or as standby."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.standby.model.following import Following
from tests.standby.model.leading import Leading
from tests.standby.model.rules import BEAT, ID, PATIENCE, ROOT

if TYPE_CHECKING:
    from tests.standby.model.world import World


class Member(Leading, Following):
    """A process on a copy of the store. An entry is (id, id of the one before, changes); an id is (term, number)."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.history, self.saved, self.applied, self.full = [], 0, 0, 0
        self.role = "down"

    # Starting and stopping

    def start(self, first: bool = False) -> None:
        if self.up or self.life >= 1000:
            return
        world = self.world
        self.up, self.role, self.term, self.state = True, "standby", 0, None
        self.known = 0
        self.start_ballots(first)
        self.heard = world.now
        self.nonce, self.news, self.beside = 0, 0, []
        self.kept = len(self.history) if self.lost_power else 0
        self.index = {entry[0]: place for place, entry in enumerate(self.history)}
        self.take_part(first)
        self.tick()

    def take_part(self, first: bool) -> None:
        """As primary, where the register says so."""
        if first and self.name == "A":
            self.activate(1, ("A", "B"))
        elif not first:
            self.begin("resume")

    lost_power = False

    def crash(self, power: bool) -> None:
        super().crash(power)
        kept = (
            self.saved
            if power or self.role == "primary"
            else self.world.random.randrange(self.saved, len(self.history) + 1)
        )
        del self.history[kept:]
        self.saved, self.applied, self.lost_power = len(self.history), min(self.applied, len(self.history)), power
        if self.role == "primary":
            self.applied = len(self.history)
        self.role = "down"

    def trim(self) -> None:
        """The file of recent entries is truncated: a standby that lacks more needs a copy."""
        if self.up and self.role == "primary":
            self.kept = max(self.kept, self.saved - 2)

    def step_down(self) -> None:
        world = self.world
        world.say(self.name, "steps down from", self.term)
        del self.history[self.saved :]
        self.applied = self.saved
        self.life += 1  # No timer of the primary's goes on.
        self.role, self.state, self.attempt, self.heard, self.nonce, self.news = "standby", None, None, world.now, 0, 0
        self.beside = []
        self.index = {entry[0]: place for place, entry in enumerate(self.history)}
        self.tick()

    def floor(self) -> int:
        return max(self.known, self.history[-1][0][0] if self.history else 0)

    def tail(self) -> ID:
        return self.history[-1][0] if self.history else ROOT

    def tick(self) -> None:
        world = self.world
        world.timer(self, BEAT, self.tick)
        self.expire()
        if self.role == "primary":
            for proxy in world.proxies:
                self.send(proxy.name, "beat", self.term)
            self.watch()
            self.lead()
        else:
            self.ask_sync()
            if world.now - self.heard > PATIENCE + 5 * (self.name == "B"):
                if self.may_begin("takeover"):
                    self.begin("takeover")
            elif self.unsettled and world.rules["settle"] and self.may_begin("resume"):
                self.begin("resume")  # The register may name it, without its knowing.
