"""The header Idempotency-Key (IETF draft-ietf-httpapi-idempotency-key-header-07)."""

from __future__ import annotations

import re
from typing import Final

from pubsub.web.problems import Refused

KEY_LENGTH_MAX: Final = 255
"""Characters of an Idempotency-Key."""

_STRING: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE: Final = re.compile(r"[A-Za-z0-9._~:/+=@*-]+")
_PRINTABLE: Final = re.compile(rf"[ -~]{{1,{KEY_LENGTH_MAX}}}")


class BadKey(Refused):
    """A missing or malformed Idempotency-Key."""

    def __init__(self, detail: str) -> None:
        super().__init__(400, detail)


def check_key(key: str) -> str:
    """Return a key that a caller chose, if it is valid.

    Raises:
        BadKey: it is not.
    """
    if _PRINTABLE.fullmatch(key) is None:
        raise BadKey(f"An Idempotency-Key is 1 to {KEY_LENGTH_MAX} printable ASCII characters.")
    return key


def read_key(value: str, *, verbatim: bool = False) -> str:
    """Return the key of a request.

    Args:
        value: of the header; "" if the header is missing.
        verbatim: the key is the text between the quotes, or the whole text. Gateways have stored keys in this form
            since their first release, and a repeat must find its key. Otherwise the key is a String of RFC 9651, or one
            word without quotes, as much software writes it.

    Raises:
        BadKey: the key is missing or malformed.
    """
    if not value:
        raise BadKey("The request has no Idempotency-Key; this resource needs the header.")
    value = value.strip()
    if verbatim:
        return check_key(value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value)
    if (quoted := _STRING.fullmatch(value)) is not None:
        return check_key(re.sub(r"\\(.)", r"\1", quoted[1]))
    if _BARE.fullmatch(value):
        return check_key(value)
    raise BadKey(
        'The Idempotency-Key is malformed; write a string in double quotes: "8e03978e-40d5-43dd-bc93-6894a57f9324".'
    )


def write_key(key: str) -> str:
    """Return the header's value, a String of RFC 9651."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
