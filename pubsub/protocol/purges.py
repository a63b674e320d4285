"""The places of PURGE: by log, the offset below which its messages are deleted (docs/explanation/topics.md, U5)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pubsub.base.limits import OFFSET_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.names import is_hex

LOGS_MAX: Final = 10_000
"""Most logs of one request. A topic has one log, and more only until the messages of merged ones are gone."""

PLACES_BYTES_MAX: Final = 64 * LOGS_MAX


class Found(NamedTuple):
    """An answer to PURGE.

    Attributes:
        places: by log, the offset below which a purge now deletes.
        records: messages that are stored below these places.
        unread: those of them that a subscriber has not acknowledged.
        subscribers: the topic's subscribers; None: an earlier release does not say that.
    """

    places: dict[str, int]
    records: int
    unread: int
    subscribers: int | None = None


def encode_places(places: Mapping[str, int]) -> bytes:
    """Return the body of a request."""
    return json.dumps(dict(places), separators=(",", ":")).encode("ascii")


def decode_places(body: bytes) -> dict[str, int]:
    """Read the body of a request; an empty one has no places.

    Raises:
        DecodeError: it has another form.
    """
    try:
        places: Any = json.loads(body) if 0 < len(body) <= PLACES_BYTES_MAX else {} if not body else None
    except (ValueError, RecursionError):
        places = None
    if not isinstance(places, dict) or len(places) > LOGS_MAX or not all(map(_is_place, places.items())):
        raise DecodeError("the places of a purge are not JSON with an offset for each log")
    return places


def _is_place(item: tuple[str, Any]) -> bool:
    log, offset = item
    return is_hex(log) and type(offset) is int and 0 < offset <= OFFSET_MAX


def encode_found(found: Found) -> bytes:
    """Return the body of an answer."""
    return json.dumps(found._asdict(), separators=(",", ":")).encode("ascii")


def decode_found(body: bytes) -> Found:
    """Read the body of an answer.

    Raises:
        DecodeError: it has another form.
    """
    try:
        facts: Any = json.loads(body)
        subscribers = facts.get("subscribers")
        return Found(
            decode_places(encode_places(facts["places"])),
            int(facts["records"]),
            int(facts["unread"]),
            None if subscribers is None else int(subscribers),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DecodeError("the answer to a purge cannot be read") from None
