"""Each named part of the model's world: it sends, and may die."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.standby.model.world import World


class Node:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.up, self.life = world, name, False, 0

    def send(self, target: str, *message: Any) -> None:
        self.world.send(self.name, target, *message)

    def crash(self, power: bool) -> None:
        self.up = False
        self.life += 1
