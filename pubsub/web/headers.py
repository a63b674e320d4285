"""Header fields that a request may have once: two of them leave open which one is meant."""

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
        b"last-event-id",
        b"origin",
        b"pubsub-key",
        b"reliable-finished",
        b"reliable-outcome",
        b"reliable-response-url",
        b"sec-fetch-site",
    }
)
"""Fields that this project reads and of which a request has one at most (RFC 9110, 5.3), in lower case.

`Transfer-Encoding`, `Connection` and `Upgrade` are lists, which the parser reads. `Pubsub-Header-NAME` is checked where
it is read.
"""

Fields = Iterable[tuple[bytes, bytes]]


def check_single(fields: Fields) -> None:
    """See that no field of SINGLE comes twice.

    Args:
        fields: names and values, as ASGI has them.

    Raises:
        Refused: one does.
    """
    seen: set[bytes] = set()
    for name, _ in fields:
        key = name.lower()
        if key in seen:
            raise Refused(400, f"{key.decode('ascii')} is given twice; a request has one.")
        if key in SINGLE:
            seen.add(key)


def value(fields: Fields, name: str) -> str:
    """The value of the first field of a name, which is in lower case; "" for none."""
    wanted = name.encode("ascii")
    return next((text.decode("latin-1") for found, text in fields if found.lower() == wanted), "")
