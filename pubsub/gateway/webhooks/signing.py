"""Signatures of webhooks (Standard Webhooks 1.0, *Signature scheme*).

`webhook-signature` contains `v1,` and base64 of HMAC-SHA256 over `id.timestamp.body`, once for each secret. A receiver
needs only one of them, so a secret can be replaced while messages flow.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

PREFIX: Final = "whsec_"
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64


def parse_secret(text: str) -> bytes:
    """Return the bytes of a secret in the form `whsec_` and base64.

    Raises:
        ValueError: it is malformed; the text does not repeat it.
    """
    if not text.startswith(PREFIX):
        raise ValueError("a secret must be whsec_ and base64")
    try:
        secret = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a secret must have base64 after whsec_") from None
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise ValueError(f"a secret must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")
    return secret


def format_secret(secret: bytes) -> str:
    return PREFIX + base64.b64encode(secret).decode()


def signature(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature`.

    Args:
        secrets: all valid ones.
        message_id: `webhook-id`.
        timestamp: `webhook-timestamp`, seconds since 1970.
        body: of the request.
    """
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return " ".join("v1," + base64.b64encode(hmac.digest(secret, signed, sha256().name)).decode() for secret in secrets)
