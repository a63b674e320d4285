"""Where a request came from, where an answer goes, and the answers of one loop, which leave after its commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pubsub.protocol.messages import Message

LISTENER: Final = -1
"""The link that other servers use to reach this one."""


@dataclass(slots=True)
class Origin:
    """Where an answer goes.

    Attributes:
        link: index of the proxy, LISTENER for our own address, or the address of another server.
        origin: whom it is to be passed on to there; b"" for nobody else.
        callback: the one that the request named; 0 for none.
    """

    link: int | str
    origin: bytes
    callback: int


@dataclass(slots=True)
class Outgoing:
    """A message for the shell to send.

    Attributes:
        link: index of the proxy, LISTENER for our own address, or the address of another server.
        origin: whom it is to be passed on to there; b"" for nobody else.
        destination: the callback it answers; 0 for none.
        source: our callback that is to get the answer; 0 for none.
    """

    link: int | str
    origin: bytes
    destination: int
    source: int
    message: Message
