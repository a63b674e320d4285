"""The models by name, each with its rules."""

from __future__ import annotations

from typing import Final

from tests.topics.model import defaults, delay, deletion, families, settings
from tests.topics.model.exploring import Model
from tests.topics.model.rules import LOOKING_BACK
from tests.topics.model.world import World

MODELS: Final[dict[str, tuple[Model, dict[str, str]]]] = {
    "looking_back": (World, LOOKING_BACK),
    "settings": (settings.World, settings.RULES),
    "defaults": (defaults.World, defaults.RULES),
    "delay": (delay.DelayingWorld, delay.RULES),
    "deletion": (deletion.World, deletion.RULES),
    "families": (families.World, families.RULES),
}
