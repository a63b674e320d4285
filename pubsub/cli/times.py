"""The times of a topic as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pubsub.client.look_back import TopicTimes
from pubsub.protocol.names import format_position


def times_as_json(found: TopicTimes) -> dict[str, Any]:
    """Return the fields with times in ISO 8601 and positions as text."""
    facts: dict[str, Any] = asdict(found)
    for end in ("oldest", "newest"):
        facts[end] = facts[end] and facts[end].isoformat().replace("+00:00", "Z")
    for place in ("first", "end"):
        facts[place] = facts[place] and format_position(facts[place])
    return facts
