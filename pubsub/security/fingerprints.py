"""Fingerprints: short names of public keys in logs, users and commands.

They are separate from `keys`, which small commands import to read the keys in their proxies file. To import a hash
function takes longer.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

FINGERPRINT_BYTES: Final = 4


def fingerprint(key: bytes) -> str:
    """Return eight hex digits for a public key.

    They prove nothing, because another key with the same digits can be found.
    """
    return blake2b(key, digest_size=FINGERPRINT_BYTES, person=b"pubsub key").hexdigest()
