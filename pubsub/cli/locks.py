"""What `pubsub status` says of keys: of each process who is authorized there, who came and what was denied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pubsub.client.requests import Answer

Row = dict[str, Any]

_REFUSED: Final = ("handshakes_refused_", "handshakes_malformed", "handshakes_failed")
"""How the counters begin of those who came and were not let in."""


def watched(proxies: Mapping[str, Answer], servers: Mapping[str, Answer]) -> tuple[list[Row], list[str]]:
    """What the processes that answered say of keys, and what is wrong there.

    Args:
        proxies: address -> its report, or why there is none.
        servers: ID -> its report, or why there is none.

    Returns:
        For each process with keys `role`, `id`, `authorized` (the digest of what its file says), `lines`, `entered`,
        `refused`, `denied`; and warnings.
    """
    reports = [("proxy", str(answer["proxy"]), answer) for answer in proxies.values() if isinstance(answer, dict)]
    reports += [("server", name, answer) for name, answer in servers.items() if isinstance(answer, dict)]
    rows, warnings = [], []
    for role, name, report in reports:
        if report.get("insecure"):
            warnings.append(f"{role} {name} lets in without a key whoever reaches {report['insecure']} (--insecure)")
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
    """A sentence where not all processes have the same file of who is authorized."""
    said: dict[str, list[str]] = {}
    for row in rows:
        said.setdefault(row["authorized"], []).append(f"{row['role']} {row['id']}")
    if len(said) < 2:
        return []
    each = "; ".join(f"{digest}: {', '.join(names)}" for digest, names in said.items())
    return [f"who is authorized is not the same everywhere, bring the file to all of them: {each}"]
