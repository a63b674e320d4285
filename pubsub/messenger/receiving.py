"""Whole messages as copied bytes, bounded in frames and bytes: for protocols whose envelopes are taken apart.

What a core keeps for long must not keep a large buffer of ZeroMQ's alive, and may be a key of a dictionary.
"""

from __future__ import annotations

from typing import Any, Final

import zmq
from zmq import backend

_NOBLOCK: Final = int(zmq.NOBLOCK)
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)
_raw_receive: Final[Any] = backend.Socket.recv
_raw_get: Final[Any] = backend.Socket.get


def receive_copied(
    sock: zmq.Socket[bytes], frames_max: int, bytes_max: int, *, known: bool = False
) -> list[bytes] | None:
    """The frames of the next message, each copied, or None where none is waiting; [] for one that is too large.

    Args:
        sock: the socket.
        frames_max, bytes_max: of a message, all its frames together.
        known: one is probably waiting. Else the socket is asked first: that takes two system calls, and to find out by
            the exception costs three times as much.
    """
    if not known and not _raw_get(sock, _EVENTS) & _POLLIN:
        return None
    try:
        return _whole(sock, _raw_receive(sock, _NOBLOCK, False), frames_max, bytes_max)
    except zmq.Again:
        return None


def receive_of_user(sock: zmq.Socket[bytes], frames_max: int, bytes_max: int) -> tuple[str, list[bytes] | None]:
    """As `receive_copied`, of a ROUTER that asks for keys: also whose key opened the connection.

    Of a socket that does not ask, the peer itself would say who it is, and be believed.
    """
    if not _raw_get(sock, _EVENTS) & _POLLIN:
        return "", None
    try:
        first = _raw_receive(sock, _NOBLOCK, False)
    except zmq.Again:
        return "", None
    return str(first.get("User-Id")), _whole(sock, first, frames_max, bytes_max)


def _whole(sock: zmq.Socket[bytes], first: zmq.Frame, frames_max: int, bytes_max: int) -> list[bytes]:
    """The message that begins with a frame. Each knows whether more follow; to ask the socket costs twice as much."""
    frame, frames, size, count = first, [first.bytes], len(first), 1
    while frame.more:
        frame = _raw_receive(sock, _NOBLOCK, False)
        size += len(frame)
        count += 1
        if size > bytes_max or count > frames_max:
            frames.clear()  # What is left of it has to be taken too.
        else:
            frames.append(frame.bytes)
    return [] if size > bytes_max or count > frames_max else frames
