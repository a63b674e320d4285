"""Topics that a server holds back: damaged ones, and those of an older copy (docs/operations.md, *Damaged stores*).

Such a topic is announced and not served. Every request on it is answered `unavailable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

HELD_BACK_MAX: Final = 100
"""Topics that are listed; the others are counted."""


def held_back(servers: Mapping[str, Any]) -> tuple[list[dict[str, str]], int]:
    """Return the topics that are held back, with `topic`, `server` and `reason`, and the number of those left out.

    Args:
        servers: ID -> its report, or the reason why there is none.
    """
    found = [
        {"topic": name, "server": server, "reason": facts.get("quarantined") or report["stale"]}
        for server, report in sorted(servers.items())
        if isinstance(report, dict)
        for name, facts in sorted(report["topics"].items())
        if facts.get("quarantined") or report.get("stale")
    ]
    return found[:HELD_BACK_MAX], max(0, len(found) - HELD_BACK_MAX)
