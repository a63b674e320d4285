"""Key pairs, as ZeroMQ makes them: the one module here that knows ZeroMQ."""

from __future__ import annotations

from dataclasses import dataclass, field

import zmq
from zmq.utils import z85


@dataclass(frozen=True, slots=True)
class Pair:
    """A key pair; the secret half is not shown where the pair is printed.

    Attributes:
        public, secret: 32 bytes each.
    """

    public: bytes
    secret: bytes = field(repr=False)


def new_pair() -> Pair:
    """A pair that nobody has had before, from the operating system's source of chance."""
    public, secret = zmq.curve_keypair()
    return Pair(z85.decode(public), z85.decode(secret))


def pair_of(secret: bytes) -> Pair:
    """The pair of a secret key of 32 bytes: its public half is computed."""
    return Pair(z85.decode(zmq.curve_public(z85.encode(secret))), secret)
