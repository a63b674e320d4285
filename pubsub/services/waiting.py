"""Waiting for sockets by the descriptors on which ZeroMQ signals.

`zmq_poll` queries each socket twice and builds its table anew each time: about twenty system calls per turn for three
sockets. This table is permanent, and fewer sockets are queried (ZeroMQ's reference of ZMQ_FD):

* A *used* socket, with which the owner sends and receives, is queried before each sleep, since either may consume
  ZeroMQ's signal.
* A *quiet* socket is queried once its descriptor is readable, until it has no more messages.
"""

from __future__ import annotations

import select
from collections.abc import Iterable
from math import ceil
from typing import Any, Final

import zmq
from zmq import backend

_EVENTS: Final = int(zmq.EVENTS)
_FD: Final = int(zmq.FD)
_POLLIN: Final = int(zmq.POLLIN)
_raw_get: Final[Any] = backend.Socket.get

Source = Any
"""A ZeroMQ socket or a file descriptor."""


class Waiting:
    """The sockets and descriptors to wait for.

    Args:
        used: sockets with which the owner sends and receives at any time.
        quiet: descriptors, and sockets that are read only after `wait` has returned them.
        wakers: those of the quiet ones that end a nap.

    Attributes:
        at_once: whether the last wait found something without sleeping.
    """

    def __init__(
        self, used: Iterable[Source] = (), quiet: Iterable[Source] = (), wakers: Iterable[Source] = ()
    ) -> None:
        self._used, quiet = list(used), list(quiet)
        self._unsure = {source: None for source in quiet if not isinstance(source, int)}
        """The quiet sockets that may have messages."""
        self._sources = {_descriptor(source): source for source in (*self._used, *quiet)}
        self._all = _poll(self._sources)
        self._wakers = _poll(map(_descriptor, wakers))
        self.at_once = False

    def wait(self, seconds: float) -> list[Source]:
        """Return the sources to read, at the latest after `seconds`. A source may have nothing.

        A used socket with a signal is not queried: a read finds out at half the cost.
        """
        ready: list[Source] = []
        for sock in self._used:
            if _raw_get(sock, _EVENTS) & _POLLIN:
                ready.append(sock)
        for sock in tuple(self._unsure):
            if _raw_get(sock, _EVENTS) & _POLLIN:
                ready.append(sock)
            else:
                del self._unsure[sock]
        self.at_once = bool(ready)
        for descriptor, _ in self._all.poll(0 if ready else ceil(seconds * 1000)):
            source = self._sources[descriptor]
            if isinstance(source, int):
                ready.append(source)
            elif source in self._used:
                if source not in ready:
                    ready.append(source)
            elif source not in ready and _raw_get(source, _EVENTS) & _POLLIN:
                ready.append(source)
                self._unsure[source] = None
        return ready

    def batching_seconds(self, seconds: float) -> None:
        """Wait for the wakers only, and read nothing."""
        if not self._unsure:
            self._wakers.poll(ceil(seconds * 1000))


def _descriptor(source: Source) -> int:
    return source if isinstance(source, int) else int(_raw_get(source, _FD))


def _poll(descriptors: Iterable[int]) -> select.poll:
    made = select.poll()
    for descriptor in descriptors:
        made.register(descriptor, select.POLLIN)
    return made
