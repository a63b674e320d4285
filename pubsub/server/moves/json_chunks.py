"""The first form of a chunk: read always, and written for a receiver of a release that reads no other form.

    one line of JSON with the lengths of the bodies, -1 for none, then the bodies

This module may be deleted when no server without the field `form` of TRANSFER needs an upgrade any more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import to_builtins
from msgspec.structs import astuple

from pubsub.protocol.batch import Buffer
from pubsub.server.topic.spans import Span, read_rows, row_of


def encode(part: Any) -> bytes:
    """Encode a part of a topic (`chunks.Part`)."""
    bodies: list[Buffer] = []
    line = json.dumps(_head(part, bodies), separators=(",", ":")).encode("ascii")
    return b"".join((line, b"\n", *bodies))


def _head(part: Any, bodies: list[Buffer]) -> dict[str, Any]:
    match type(part).__name__:
        case "Described":
            return {
                "open": part.open,
                "logs": [(log, *astuple(row)) for log, row in part.logs.items()],
                "spine": _rows(part.history),
                "absorbed": part.merged,
                "ended": part.ended,
                "rivals": part.contested,
            }
        case "Batches":
            return {"log": part.log, "rows": _with_sizes(part.batches, bodies)}
        case "Staged":
            stage = part.publisher, part.batch, part.attempt, part.heard
            return {"stage": stage, "rows": _with_sizes(part.pieces, bodies)}
        case "Configured":  # An earlier release refuses this line, and keeps neither the topic nor other settings.
            return {"settings": to_builtins(part.settings)}
        case "DelayedRows":  # As above.
            return {"delayed": _with_sizes(part.rows, bodies)}
        case "Watermark":
            return {"skip": part.number, "counters": list(part.counters.items())}
        case "Last":
            return {"last": list(part.counters.items())}
        case "Removed":
            return {"removal": to_builtins(part.removal), "compacted": to_builtins(part.compacted)}
        case "Ordered":
            return {"order": part.order}
        case "Purged":  # As above.
            return {"purged": to_builtins(part.purged)}
        case "Groups":  # As above.
            return {"groups": to_builtins(part.rows)}
        case "Members":
            return {"group": part.group, "members": to_builtins(part.rows)}
        case "Retries":
            return {"group": part.group, "retries": to_builtins(part.rows)}
        case "Copies":
            return {"group": part.group, "copies": to_builtins(_with_sizes(part.rows, bodies))}
    entries = []
    for name, row in part.rows.items():
        *facts, acknowledged, backlog = astuple(row)
        entries.append((name, *facts, *acknowledged, _rows(backlog)))
    return {"entries": entries}


def _rows(spans: Iterable[Span]) -> list[tuple[Any, ...]]:
    return [row_of(span) for span in spans]


def _with_sizes(rows: Iterable[Any], bodies: list[Buffer]) -> list[tuple[Any, ...]]:
    out = []
    for row in rows:
        *facts, body = astuple(row)
        out.append((*facts, -1 if body is None else len(body)))
        bodies += [] if body is None else [body]
    return out


def decode(data: bytes, line_bytes_max: int) -> list[Any]:
    """Return the name of a part and its fields, unchecked.

    Raises:
        ValueError, TypeError, RecursionError: the bytes are no chunk of this form.
    """
    end = data.index(b"\n", 0, line_bytes_max + 1)
    head, view, place = json.loads(data[:end]), memoryview(data), end + 1

    def taken(rows: Any) -> list[tuple[Any, ...]]:
        nonlocal place
        out = []
        for *facts, size in rows:
            if type(size) is not int or not -1 <= size <= len(data) - place:
                raise ValueError("a body is longer than its chunk")
            place += max(size, 0)
            out.append((*facts, None if size < 0 else view[place - size : place]))
        return out

    match head:
        case {"open": log, "logs": logs, "spine": spans, "absorbed": merged, "ended": ended, "rivals": contested}:
            rows = {name: facts for name, *facts in logs}
            part = ["Described", log, rows, read_rows(spans), merged, ended, contested]
        case {"log": log, "rows": rows}:
            part = ["Batches", log, taken(rows)]
        case {"stage": [*facts], "rows": rows}:
            part = ["Staged", *facts, taken(rows)]
        case {"delayed": rows}:
            part = ["DelayedRows", taken(rows)]
        case {"skip": number, "counters": counters}:
            part = ["Watermark", number, dict(counters)]
        case {"last": counters}:
            part = ["Last", dict(counters)]
        case {"settings": settings}:
            part = ["Configured", settings]
        case {"removal": removal, "compacted": compacted}:
            part = ["Removed", removal, compacted]
        case {"order": order}:
            part = ["Ordered", order]
        case {"purged": places}:
            part = ["Purged", places]
        case {"groups": _} | {"group": _}:
            part = _of_groups(head, taken)
        case {"entries": entries}:
            part = ["Subscriptions", {name: _subscription(*facts) for name, *facts in entries}]
        case _:
            raise ValueError("chunk of an unknown kind")
    if place != len(data):
        raise ValueError("bytes follow the last body")
    return part


def _of_groups(head: dict[str, Any], taken: Callable[[Any], list[tuple[Any, ...]]]) -> list[Any]:
    match head:
        case {"groups": rows}:
            return ["Groups", rows]
        case {"group": group, "members": rows}:
            return ["Members", group, rows]
        case {"group": group, "retries": rows}:
            return ["Retries", group, rows]
        case {"group": group, "copies": rows}:
            return ["Copies", group, taken(rows)]
    raise ValueError("chunk of an unknown kind")


def _subscription(number: Any, epoch: Any, on: Any, since: Any, log: Any, offset: Any, backlog: Any) -> tuple[Any, ...]:
    return number, epoch, on, since, (log, offset), read_rows(backlog)
