"""Keys as text and as bytes (docs/security.md, *Keys*).

A key is 32 bytes of Curve25519. As text it is `pk_` (public) or `sk_` (secret) and 43 characters of base64url. These
characters have no meaning in a shell, a comment or a list of keys. By the prefix, scanners find a published secret.
Each key has one spelling. No error repeats the text that it refuses, because a text given as a public key may be a
secret one.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from typing import Final

from pubsub.errors import InvalidKey

KEY_BYTES: Final = 32
PUBLIC: Final = "pk_"
SECRET: Final = "sk_"  # noqa: S105 - a prefix of secrets, not a secret.
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
_DIGITS: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_FIELD: Final = 2**255 - 19
_SMALL_ORDER: Final = frozenset(
    {
        0,
        1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
        _FIELD - 1,
    }
)
"""Points with which every secret key gives the same shared secret (RFC 7748, section 6.1), so they are refused."""


def format_public(key: bytes) -> str:
    """Return the text of a public key of 32 bytes."""
    return PUBLIC + _encode(key)


def format_secret(key: bytes) -> str:
    """Return the text of a secret key of 32 bytes. It belongs in a key file only."""
    return SECRET + _encode(key)


def parse_public(text: str) -> bytes:
    """Return the 32 bytes of a public key's text.

    Raises:
        InvalidKey: it is none; a key has only one spelling.
    """
    if text.startswith(SECRET):
        raise InvalidKey("it is a secret key (sk_), which is exposed now: make a new key, and give its pk_")
    key = _decode(text, PUBLIC)
    point = int.from_bytes(key, "little")
    if point >= _FIELD or point in _SMALL_ORDER:
        raise InvalidKey("its bytes are no valid public key")
    return key


def parse_secret(text: str) -> bytes:
    """Return the 32 bytes of a secret key's text.

    Raises:
        InvalidKey: it is none.
    """
    if text.startswith(PUBLIC):
        raise InvalidKey("it is a public key (pk_) where a secret one (sk_) belongs")
    return _decode(text, SECRET)


def _encode(key: bytes) -> str:
    if len(key) != KEY_BYTES:
        raise InvalidKey(f"it has {len(key)} bytes; a key has {KEY_BYTES}")
    return b2a_base64(key, newline=False)[:-1].translate(_TO_URL).decode("ascii")


def _decode(text: str, prefix: str) -> bytes:
    digits = text.removeprefix(prefix)
    if digits == text:
        raise InvalidKey(f"it does not begin with {prefix}")
    if _DIGITS.fullmatch(digits) is None:
        raise InvalidKey(f"it is not {prefix} and 43 characters of A-Z a-z 0-9 - _")
    key = a2b_base64(digits.encode("ascii").translate(_FROM_URL) + b"=")
    if _encode(key) != digits:
        raise InvalidKey("its last character cannot end a key")
    return key
