"""Message IDs, which are Idempotency-Keys, and the headers of reliable requests.

An ID of ours is `session-number-secret`: the session is random and new each time a sender opens its directory, the
number rises with each request of the session, the secret is 128 random bits. The number lets a sender say once for many
requests that it will not send them again (`Reliable-Finished`), so that a receiver need not keep a tombstone for each.
Anybody else's key, a UUID from curl, has no number, and its tombstone stays for its whole time.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

IDEMPOTENCY_KEY: Final = "idempotency-key"
CONFIRM: Final = "reliable-confirm"
"""In a response: the URL whose DELETE says that the response was stored, relative to the request's."""

FINISHED: Final = "reliable-finished"
"""In a request: no request of this session with this number or a lower one will be sent again."""

RESPONSE_URL: Final = "reliable-response-url"
"""In a job: where its result goes."""

OUTCOME: Final = "reliable-outcome"
"""In a job's result: `done`, or `failed` where the handler was given up."""

_OURS: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,15})-[0-9a-f]{32}")
_NUMBER: Final = re.compile(r"[0-9]{1,15}")


def make_id(session: str, number: int, secret: str) -> str:
    """A message ID.

    Args:
        session: 16 hexadecimal digits; number: of the request in it; secret: 32 hexadecimal digits.
    """
    return f"{session}-{number}-{secret}"


def session_of(key: str) -> tuple[str, int] | None:
    """The session and number of an ID of ours; None for any other key."""
    found = _OURS.fullmatch(key)
    return (found[1], int(found[2])) if found else None


def read_finished(value: str | None) -> int:
    """The number that `Reliable-Finished` names; 0 where it is missing or no number."""
    return int(value) if value is not None and _NUMBER.fullmatch(value) else 0


def fingerprint(method: str, target: str, response_url: str, body: bytes) -> bytes:
    """What a repeat of a request must have in common with the first: 32 bytes.

    Args:
        method: the HTTP method; target: path and query; response_url: of a job, else ""; body: the whole body.
    """
    digest = sha256()
    for part in (method.encode(), target.encode(), response_url.encode()):
        digest.update(len(part).to_bytes(8, "big") + part)
    digest.update(body)
    return digest.digest()
