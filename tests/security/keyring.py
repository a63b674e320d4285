"""Keys for tests: real ones are made by ZeroMQ, these are the same each time."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import strategies as st

from pubsub.errors import InvalidKey
from pubsub.security.keys import format_public, parse_public


def key(name: str) -> bytes:
    """A public key, always the same for a name."""
    digest = sha256(name.encode()).digest()
    return digest[:31] + bytes([digest[31] & 0x7F])


def pk(name: str) -> str:
    """Its text."""
    return format_public(key(name))


def _is_public(raw: bytes) -> bool:
    try:
        return parse_public(format_public(raw)) == raw
    except InvalidKey:
        return False


public_keys = st.binary(min_size=32, max_size=32).map(lambda raw: raw[:31] + bytes([raw[31] & 0x7F])).filter(_is_public)
