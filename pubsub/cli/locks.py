"""The key section of `pubsub status`: for each process its access list, accepted and refused connections, and denied
requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pubsub.client.requests import Answer

Row = dict[str, Any]

_REFUSED: Final = ("handshakes_refused_", "handshakes_malformed", "handshakes_failed")
"""Prefixes of the counters of refused connections."""


def watched(proxies: Mapping[str, Answer], servers: Mapping[str, Answer]) -> tuple[list[Row], list[str]]:
    """Return the key figures of the processes that answered, and warnings about them.

    Args:
        proxies: address -> its report, or the reason why there is none.
        servers: ID -> its report, or the reason why there is none.

    Returns:
        For each process with keys `role`, `id`, `authorized` (digest of its access list), `lines`, `entered`,
        `refused` and `denied`; then the warnings.
    """
    reports = [("proxy", str(answer["proxy"]), answer) for answer in proxies.values() if isinstance(answer, dict)]
    reports += [("server", name, answer) for name, answer in servers.items() if isinstance(answer, dict)]
    rows, warnings = [], []
    for role, name, report in reports:
        if report.get("insecure"):
            warnings.append(f"{role} {name} accepts connections without a key at {report['insecure']} (--insecure)")
        warnings += [f"{role} {name}: {problem}" for problem in report.get("problems", ())]
        if "authorized_digest" in report:
            rows.append(_row(role, name, report))
    return rows, warnings + _differences(rows)


def _row(role: str, name: str, report: Mapping[str, Any]) -> Row:
    counters = report["counters"]
    return {
        "role": role,
        "id": name,
        "authorized": report["authorized_digest"],
        "lines": report["authorized_lines"],
        "entered": counters.get("handshakes_entered", 0),
        "refused": sum(count for counter, count in counters.items() if counter.startswith(_REFUSED)),
        "denied": counters.get("denied", 0),
    }


def _differences(rows: list[Row]) -> list[str]:
    """Return a warning if not all processes have the same access list."""
    said: dict[str, list[str]] = {}
    for row in rows:
        said.setdefault(row["authorized"], []).append(f"{row['role']} {row['id']}")
    if len(said) < 2:
        return []
    each = "; ".join(f"{digest}: {', '.join(names)}" for digest, names in said.items())
    return [f"the access lists differ; copy the same file to all processes: {each}"]
