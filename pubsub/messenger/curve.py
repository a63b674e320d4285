"""CURVE keys of a socket: its own, and the expected ones of the other side (RFC 26, https://rfc.zeromq.org/spec/26/).

CURVE encrypts only traffic that leaves the process, because `inproc://` has no handshake. A key is 32 raw bytes. The
opener of a socket decides which keys to use and to accept. A socket that asks for keys needs a ZAP handler
(`doorkeeper.py`) in the same context, opened before the socket is bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import zmq


class Pair(Protocol):
    """A key pair: 32 bytes each."""

    @property
    def public(self) -> bytes:
        """The public key."""

    @property
    def secret(self) -> bytes:
        """The secret key."""


@dataclass(frozen=True, slots=True)
class CurveServer:
    """Keys of a listening socket: each client must prove its identity.

    Attributes:
        pair: the socket's own key pair.
        domain: name of this socket in ZeroMQ's questions to the ZAP handler.
    """

    pair: Pair
    domain: str


@dataclass(frozen=True, slots=True)
class CurveClient:
    """Keys of a connecting socket: it proves its identity, and speaks only with a peer that has an expected key.

    Attributes:
        pair: the socket's own key pair.
        expected: public keys of the other side, tried in turn. During a key replacement there are two.
    """

    pair: Pair
    expected: tuple[bytes, ...]


def lock_router(sock: zmq.Socket[Any], endpoint: str, curve: CurveServer | None) -> None:
    """Require keys from clients; call it before the socket is bound."""
    if curve is None or endpoint.startswith("inproc://"):
        return
    sock.curve_server = True
    sock.curve_secretkey = curve.pair.secret
    sock.zap_domain = curve.domain.encode("ascii")
    sock.setsockopt(
        zmq.ZAP_ENFORCE_DOMAIN, 1
    )  # Without a ZAP handler reject every client, instead of accepting every one.


def lock_dealer(sock: zmq.Socket[Any], endpoint: str, curve: CurveClient | None, turn: int = 0) -> None:
    """Set the socket's key and the expected key of the other side; call it before the socket connects.

    Args:
        turn: index of the expected key; after the last one the first follows again.
    """
    if curve is None or endpoint.startswith("inproc://"):
        return
    sock.curve_publickey, sock.curve_secretkey = curve.pair.public, curve.pair.secret
    sock.curve_serverkey = curve.expected[turn % len(curve.expected)]
