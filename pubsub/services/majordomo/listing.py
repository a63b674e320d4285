"""The contents of `pubsub service list`: two reports of a broker, and the rates between them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from pubsub.errors import DecodeError
from pubsub.services.client import ServiceClient
from pubsub.services.errors import CallRefused

RATE_SECONDS: Final = 1.0
"""Time between the two reports."""

_REPORT: Final = "mmi.report"


def ask(client: ServiceClient) -> dict[str, Any]:
    """Return the report of a broker.

    Raises:
        CallTimeout: no reply came.
        CallRefused: the broker has no report.
        DecodeError: the reply is not a report.
    """
    frames = client.call(_REPORT, b"").frames
    if frames[0] != b"200":
        raise CallRefused(
            _REPORT, frames[0].decode(errors="replace"), "this broker has no report: it is not a broker of this package"
        )
    try:
        report = json.loads(frames[1])
        if not isinstance(report, dict) or not all(isinstance(row["name"], str) for row in report["services"]):
            raise DecodeError("the broker's reply is not a report")
    except (IndexError, KeyError, RecursionError, TypeError, ValueError):
        raise DecodeError("the broker's reply is not a report") from None
    return report


def ask_twice(client: ServiceClient, seconds: float = RATE_SECONDS) -> dict[str, Any]:
    """Return the report of a broker, with the replies per second of each service as `rate`; errors as of `ask`."""
    began = time.monotonic()
    before = {row["name"]: row.get("answered", 0) for row in ask(client)["services"]}
    time.sleep(seconds)
    report = ask(client)
    passed = time.monotonic() - began
    for row in report["services"]:
        answered = row.get("answered", 0) - before.get(row["name"], 0)
        row["rate"] = round(max(0, answered) / passed, 1)
    return report


COLUMNS: Final = {
    "service": "name",
    "workers": "workers",
    "idle": "idle",
    "waiting": "waiting",
    "longest, s": "longest_seconds",
    "answered": "answered",
    "given up": "given_up",
    "a second": "rate",
}
"""Column of the table -> field of the report."""

_USUAL: Final = {"managed", "workers_ready", "workers_left"}


def rows(report: Mapping[str, Any]) -> list[list[str]]:
    """Return one row per service, with the fields of COLUMNS."""
    return [[str(row.get(name, "")) for name in COLUMNS.values()] for row in report["services"]]


def remarks(report: Mapping[str, Any]) -> list[str]:
    """Return remarks on the table: the number of services left out, and unusual counters."""
    hidden = int(report.get("services_in_all", 0)) - len(report["services"])
    said = [f"… and {hidden} more"] if hidden > 0 else []
    unusual = {name: count for name, count in report.get("counters", {}).items() if name not in _USUAL}
    if unusual:
        said.append(", ".join(f"{name} {count}" for name, count in unusual.items()))
    return said
