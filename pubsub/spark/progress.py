"""The backlog of a streaming query, from its progress.

Spark calls no metrics of a source in Python. So the source reports its backlog in `latestOffset`, which is for display
only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

BEHIND: Final = "records behind"
"""Name of the counts in `latestOffset`; no topic's name contains a space."""


def records_behind(progress: Any) -> dict[str, int]:
    """Return how many records of each topic wait behind a query's last batch.

    Args:
        progress: `query.lastProgress`, one of `query.recentProgress`, or `event.progress` of a listener.

    Returns:
        The counts by topic, over all sources of this format; empty before the first batch.
    """
    found: dict[str, int] = {}
    for source in () if progress is None else progress.sources:
        latest = source.latestOffset
        facts = json.loads(latest) if isinstance(latest, str) and latest.startswith("{") else latest
        counts = facts.get(BEHIND) if isinstance(facts, Mapping) else None
        for topic, count in (counts or {}).items():
            found[topic] = found.get(topic, 0) + int(count)
    return found
