"""Message IDs, which serve as Idempotency-Keys, and the headers of reliable requests.

An ID of this library is `session-number-secret`. The session is random and new each time a sender opens its directory.
The number rises with each request of the session, and the secret has 128 random bits. The number lets a sender report
many requests as finished at once (`Reliable-Finished`), so that a receiver need not keep a tombstone for each. Other
keys, such as a UUID from curl, have no number, and their tombstones stay for their full time.

The rule is docs/explanation/reliable-http.md, Q6.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

IDEMPOTENCY_KEY: Final = "idempotency-key"
CONFIRM: Final = "reliable-confirm"
"""In a response: URL, relative to the request's, whose DELETE confirms that the response is stored."""

FINISHED: Final = "reliable-finished"
"""In a request: the sender will not repeat requests of this session up to this number."""

RESPONSE_URL: Final = "reliable-response-url"
"""In a job: the URL for its result."""

OUTCOME: Final = "reliable-outcome"
"""In a job's result: `done`, or `failed` if the handler has used all its attempts."""

_OURS: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,15})-[0-9a-f]{32}")
_NUMBER: Final = re.compile(r"[0-9]{1,15}")


def make_id(session: str, number: int, secret: str) -> str:
    """Return a message ID.

    Args:
        session: 16 hexadecimal digits; number: of the request in it; secret: 32 hexadecimal digits.
    """
    return f"{session}-{number}-{secret}"


def session_of(key: str) -> tuple[str, int] | None:
    """Return session and number of an ID of this library; None for any other key."""
    found = _OURS.fullmatch(key)
    return (found[1], int(found[2])) if found else None


def read_finished(value: str | None) -> int:
    """Return the number in `Reliable-Finished`, 0 if it is missing or malformed."""
    return int(value) if value is not None and _NUMBER.fullmatch(value) else 0


def fingerprint(method: str, target: str, response_url: str, body: bytes) -> bytes:
    """Return 32 bytes that a repeat of a request must have in common with the first.

    Args:
        method: the HTTP method; target: path and query; response_url: of a job, otherwise ""; body: complete.
    """
    digest = sha256()
    for part in (method.encode(), target.encode(), response_url.encode()):
        digest.update(len(part).to_bytes(8, "big") + part)
    digest.update(body)
    return digest.digest()
