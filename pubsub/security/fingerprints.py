"""Fingerprints: by what logs, users and commands name a public key.

They are apart from the keys' texts, which the smallest command reads where its proxies file has keys: to load a hash
function takes it longer.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

FINGERPRINT_BYTES: Final = 4


def fingerprint(key: bytes) -> str:
    """Eight hex digits of a public key; another key with the same can be found, so they are no proof of anything."""
    return blake2b(key, digest_size=FINGERPRINT_BYTES, person=b"pubsub key").hexdigest()
