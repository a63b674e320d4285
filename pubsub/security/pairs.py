"""Key pairs, made by ZeroMQ. No other module of this folder imports it."""

from __future__ import annotations

from dataclasses import dataclass, field

import zmq
from zmq.utils import z85


@dataclass(frozen=True, slots=True)
class Pair:
    """A key pair; its representation hides the secret half.

    Attributes:
        public, secret: 32 bytes each.
    """

    public: bytes
    secret: bytes = field(repr=False)


def new_pair() -> Pair:
    """Return a new key pair, from the operating system's random source."""
    public, secret = zmq.curve_keypair()
    return Pair(z85.decode(public), z85.decode(secret))


def pair_of(secret: bytes) -> Pair:
    """Return the key pair of a secret key of 32 bytes, with its computed public half."""
    return Pair(z85.decode(zmq.curve_public(z85.encode(secret))), secret)
