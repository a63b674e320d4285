"""Receives complete messages as copied bytes, limited in frames and bytes, for protocols with envelopes.

A core may keep a frame for long or use it as a key of a dictionary. Neither must keep a large buffer of ZeroMQ alive.
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
    """Return the copied frames of the next message; None if none is waiting, [] if it is too large.

    Args:
        frames_max, bytes_max: limits of a message, all frames together.
        known: a message is probably waiting. If not known, ask the socket first: that costs two system calls, and the
            exception of an empty socket costs three times as much.
    """
    if not known and not _raw_get(sock, _EVENTS) & _POLLIN:
        return None
    try:
        return _whole(sock, _raw_receive(sock, _NOBLOCK, False), frames_max, bytes_max)
    except zmq.Again:
        return None


def receive_of_user(sock: zmq.Socket[bytes], frames_max: int, bytes_max: int) -> tuple[str, list[bytes] | None]:
    """Return the key's user and the frames, from a ROUTER that requires keys; otherwise as `receive_copied`.

    On a socket without keys the peer itself could set the user's name, so this function must not be used there.
    """
    if not _raw_get(sock, _EVENTS) & _POLLIN:
        return "", None
    try:
        first = _raw_receive(sock, _NOBLOCK, False)
    except zmq.Again:
        return "", None
    return str(first.get("User-Id")), _whole(sock, first, frames_max, bytes_max)


def _whole(sock: zmq.Socket[bytes], first: zmq.Frame, frames_max: int, bytes_max: int) -> list[bytes]:
    """Return the message that begins with this frame. Each frame knows whether more follow; asking the socket costs
    twice as much.
    """
    frame, frames, size, count = first, [first.bytes], len(first), 1
    while frame.more:
        frame = _raw_receive(sock, _NOBLOCK, False)
        size += len(frame)
        count += 1
        if size > bytes_max or count > frames_max:
            frames.clear()  # The remaining frames must still be read.
        else:
            frames.append(frame.bytes)
    return [] if size > bytes_max or count > frames_max else frames
