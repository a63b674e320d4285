"""Message IDs, and the Idempotency-Key that carries them (IETF draft-ietf-httpapi-idempotency-key-header-07).

An ID of ours is `session-number-secret`: the session is random and new each time a sender opens its directory, the
number rises with each request of the session, the secret is 128 random bits. The number lets a sender say once for many
requests that it will not send them again (`Reliable-Finished`), so that a receiver need not keep a tombstone for each.
Anybody else's key, a UUID from curl, has no number, and its tombstone stays for its whole time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from pubsub.http.core.limits import KEY_LENGTH_MAX

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
_STRING: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE: Final = re.compile(r"[A-Za-z0-9._~:/+=@*-]+")
_NUMBER: Final = re.compile(r"[0-9]{1,15}")


class BadKey(Exception):
    """An Idempotency-Key that is missing or malformed; the text says how."""


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


def write_key(key: str) -> str:
    """The header's value: a String of RFC 9651."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def check_key(key: str) -> str:
    """A key that a caller names: 1 to KEY_LENGTH_MAX printable ASCII characters.

    Raises:
        BadKey: it is none.
    """
    if not 0 < len(key) <= KEY_LENGTH_MAX or not all(" " <= character <= "~" for character in key):
        raise BadKey(f"a key is 1 to {KEY_LENGTH_MAX} printable ASCII characters")
    return key


def read_key(values: Sequence[str]) -> str:
    """The key that a request carries: a String of RFC 9651, or one word without quotes, as much software writes it.

    Args:
        values: of all fields of that name.

    Raises:
        BadKey: there is none, there are several, or it is malformed.
    """
    if not values:
        raise BadKey("this resource needs the header Idempotency-Key")
    if len(values) > 1:
        raise BadKey("there is more than one header Idempotency-Key")
    value = values[0].strip()
    if (quoted := _STRING.fullmatch(value)) is not None:
        return check_key(re.sub(r"\\(.)", r"\1", quoted[1]))
    if _BARE.fullmatch(value):
        return check_key(value)
    raise BadKey('the header Idempotency-Key is a string in double quotes: "8e03978e-40d5-43dd-bc93-6894a57f9324"')


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
