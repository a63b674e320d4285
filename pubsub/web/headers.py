"""Header fields that a request may have only once, because two values would be ambiguous."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pubsub.web.problems import Refused

SINGLE: Final = frozenset(
    {
        b"access-control-request-method",
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"if-match",
        b"last-event-id",
        b"origin",
        b"pubsub-key",
        b"reliable-finished",
        b"reliable-outcome",
        b"reliable-response-url",
        b"sec-fetch-site",
    }
)
"""Fields that this project reads and that may occur once in a request (RFC 9110, 5.3), in lower case.

`Transfer-Encoding`, `Connection` and `Upgrade` are lists, and the parser reads them. `Pubsub-Header-NAME` is checked
where it is read.
"""

Fields = Iterable[tuple[bytes, bytes]]


def check_single(fields: Fields) -> None:
    """Check that no field of SINGLE occurs twice.

    Args:
        fields: names and values, as ASGI passes them.

    Raises:
        Refused: a field does.
    """
    seen: set[bytes] = set()
    for name, _ in fields:
        key = name.lower()
        if key in seen:
            raise Refused(400, f"{key.decode('ascii')} is given twice; send it once.")
        if key in SINGLE:
            seen.add(key)


def value(fields: Fields, name: str) -> str:
    """Return the value of the first field with a lower-case name, "" if there is none."""
    wanted = name.encode("ascii")
    return next((text.decode("latin-1") for found, text in fields if found.lower() == wanted), "")
