"""A process on a copy of the store, as primary or as standby."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.standby.model.following import Following
from tests.standby.model.leading import Leading
from tests.standby.model.rules import BEAT, ID, PATIENCE, ROOT, TRY

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
        self.attempt, self.seen, self.known, self.quiet = None, 0, 0, 0
        self.heard = world.now
        self.nonce = self.news = 0
        self.kept = len(self.history) if self.lost_power else 0
        self.index = {entry[0]: place for place, entry in enumerate(self.history)}
        self.forgot = {}
        self.used = 0
        if first and self.name == "A":
            self.activate(1, ("A", "B"))
        elif not first:
            self.begin("resume")
        self.tick()

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
        """The file of recent entries is cut: who lacks more needs a copy."""
        if self.up and self.role == "primary":
            self.kept = max(self.kept, self.saved - 2)

    def step_down(self) -> None:
        world = self.world
        world.say(self.name, "steps down from", self.term)
        del self.history[self.saved :]
        self.applied = self.saved
        self.life += 1  # No timer of the primary's goes on.
        self.role, self.state, self.attempt, self.heard, self.nonce, self.news = "standby", None, None, world.now, 0, 0
        self.index = {entry[0]: place for place, entry in enumerate(self.history)}
        self.tick()

    def floor(self) -> int:
        return max(self.known, self.history[-1][0][0] if self.history else 0)

    def tail(self) -> ID:
        return self.history[-1][0] if self.history else ROOT

    def tick(self) -> None:
        world = self.world
        world.timer(self, BEAT, self.tick)
        if self.attempt and world.now - self.attempt["at"] > TRY:
            self.end_attempt()
        if self.role == "primary":
            for proxy in world.proxies:
                self.send(proxy.name, "beat", self.term)
            self.lead()
        else:
            self.ask_sync()
            if (
                not self.attempt
                and world.now >= self.quiet
                and world.now - self.heard > PATIENCE + 5 * (self.name == "B")
            ):
                self.begin("take")
