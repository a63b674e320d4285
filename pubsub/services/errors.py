"""What a call of a service ends with, where it has no reply (docs/services.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.errors import PubsubError

ADDRESSES_MAX: Final = 10
"""Addresses that a line names."""


class CallError(PubsubError):
    """A call of a service came to no reply (docs/services.md); `service`: its name, "" where the protocol has none."""

    def __init__(self, service: str, reason: str) -> None:
        self.service, self.reason = service, reason
        super().__init__(service, reason)

    def __str__(self) -> str:
        return f"call{' of ' + self.service if self.service else ''}: {self.reason}"


class CallTimeout(CallError):
    """Nobody at `addresses` answered a call within `seconds`, sent `tries` times: whether it was done is not known.

    Attributes:
        obstacles: what keeps connections from being made, where a command has looked; "" otherwise.
    """

    exit_code = 23
    obstacles = ""

    def __init__(self, service: str, tries: int, seconds: float, addresses: Sequence[str]) -> None:
        self.tries, self.seconds, self.addresses = tries, seconds, tuple(addresses)
        where = ", ".join(self.addresses[:ADDRESSES_MAX])
        super().__init__(service, f"no reply from {where} within {seconds:.3g} s, sent {tries} times")
        self.args = service, tries, seconds, self.addresses

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.obstacles})" if self.obstacles else super().__str__()


class NoWorker(CallError):
    """Nobody serves the service that was called, and no reply came; what was sent may still wait for a worker."""

    exit_code = 24


class CallRefused(CallError):
    """The service refused a call; a repeat would be refused again. `code` is its protocol's: "501"."""

    exit_code = 25

    def __init__(self, service: str, code: str, reason: str) -> None:
        self.code = code
        super().__init__(service, f"refused with {code}: {reason}")
        self.args = service, code, reason


class HandlerOverran(PubsubError):
    """A handler has run for longer than the `seconds` of its worker's handler time-out.

    A coroutine is cancelled. A function cannot be stopped, so the worker's process ends with this exit code.
    """

    exit_code = 35

    def __init__(self, service: str, seconds: float) -> None:
        self.service, self.seconds = service, seconds
        super().__init__(service, seconds)

    def __str__(self) -> str:
        return f"the handler of {self.service or 'this service'} has run for longer than {self.seconds:g} s"
