"""The delayed messages of a topic, for a report.

* `delayed`: messages that wait for their due time.
* `delayed_bytes`: their bytes.
* `overdue_seconds`: seconds since the oldest of them was due; null if none is due.

A message that is due for longer than a few seconds waits until its server is the topic's sole owner, or until its disk
has space.
"""

from __future__ import annotations

from typing import Any

from pubsub.base.clock import MICROSECONDS
from pubsub.server.state.state import State
from pubsub.server.topic.topic import Topic


def delayed(state: State, topic: Topic, now: float) -> dict[str, Any]:
    """Return these facts of a topic at `now`, monotonic seconds."""
    first = topic.delayed.first()
    late = 0 if first is None else state.stamps.clock(now) - first.due
    return {
        "delayed": topic.delayed.records,
        "delayed_bytes": topic.delayed.size,
        "overdue_seconds": round(late / MICROSECONDS, 3) if late > 0 else None,
    }
