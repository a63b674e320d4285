"""What topics keep by their settings, and the delayed messages that they hold, in the report of a cluster.

Each topic has the fields of `pubsub.server.requests.kept` and `pubsub.server.requests.overdue`. They are null if the
topic's server does not answer, or has a release without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pubsub.protocol.topic_settings import OR


def _either(one: str, other: str) -> str:
    return OR.join(dict.fromkeys([*one.split(OR), *other.split(OR)]))


FIELDS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "keep": _either,
    "drop": _either,
    "expire": _either,
    "rate_limit": _either,
    "bytes_limit": _either,
    "throttled": lambda one, other: one + other,
    "throttled_seconds": max,
    "settings_from": lambda one, other: {name: _either(one.get(name, ""), other[name]) for name in other},
    "settings_conflict": lambda one, other: one or other,
    "keep_seconds": max,
    "kept_bytes": lambda one, other: one + other,
    "oldest_stored_seconds": max,
    "not_let_go": lambda one, other: one or other,
    "superseded_seconds": max,
    "delayed": lambda one, other: one + other,
    "delayed_bytes": lambda one, other: one + other,
    "overdue_seconds": max,
}
"""By field: the value of a topic that two servers hold, from their two values."""


def unknown() -> dict[str, Any]:
    """Return the fields of a topic that no server has reported."""
    return dict.fromkeys(FIELDS)


def add(topic: dict[str, Any], held: Mapping[str, Any]) -> None:
    """Add the fields of one server's report of a topic to those of the cluster's report.

    Args:
        topic: of the cluster's report; it is changed.
        held: of the server's report; an earlier release has no such fields.
    """
    for name, both in FIELDS.items():
        one, other = topic[name], held.get(name)
        topic[name] = other if one is None else one if other is None else both(one, other)
