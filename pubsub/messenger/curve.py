"""CURVE at a socket: whose keys it has, and whose it expects (RFC 26, https://rfc.zeromq.org/spec/26/).

Only what leaves the process is locked: `inproc://` knows no handshake. The keys are 32 raw bytes; where they come from,
and who may enter with which, is for whoever opens the socket to know. Who asks for keys must answer ZeroMQ's questions
about each newcomer (`doorkeeper.py`), in the same context and from before the socket is bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import zmq


class Pair(Protocol):
    """A key pair: 32 bytes each."""

    @property
    def public(self) -> bytes:
        """The half that others know."""

    @property
    def secret(self) -> bytes:
        """The half that nobody else knows."""


@dataclass(frozen=True, slots=True)
class CurveServer:
    """Of a socket that is bound: newcomers prove who they are.

    Attributes:
        pair: its own key.
        domain: which door it is, in the questions that ZeroMQ asks about newcomers.
    """

    pair: Pair
    domain: str


@dataclass(frozen=True, slots=True)
class CurveClient:
    """Of a socket that connects: it proves who it is, and speaks to nobody but whose key it expects.

    Attributes:
        pair: its own key.
        expected: the other side's public keys, tried in turn: one that is replaced has two for a while.
    """

    pair: Pair
    expected: tuple[bytes, ...]


def lock_router(sock: zmq.Socket[Any], endpoint: str, curve: CurveServer | None) -> None:
    """Have newcomers prove who they are; to be called before the socket is bound."""
    if curve is None or endpoint.startswith("inproc://"):
        return
    sock.curve_server = True
    sock.curve_secretkey = curve.pair.secret
    sock.zap_domain = curve.domain.encode("ascii")
    sock.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # Without a doorkeeper nobody enters, rather than everybody.


def lock_dealer(sock: zmq.Socket[Any], endpoint: str, curve: CurveClient | None, turn: int = 0) -> None:
    """Have it prove who it is, to whom has the expected key; to be called before it connects.

    Args:
        turn: which of the expected keys; beyond the last one they begin anew.
    """
    if curve is None or endpoint.startswith("inproc://"):
        return
    sock.curve_publickey, sock.curve_secretkey = curve.pair.public, curve.pair.secret
    sock.curve_serverkey = curve.expected[turn % len(curve.expected)]
