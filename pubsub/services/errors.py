"""Errors of a call to a service that got no reply (docs/services.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.errors import PubsubError

ADDRESSES_MAX: Final = 10
"""Most addresses that one line names."""


class CallError(PubsubError):
    """A call to a service got no reply (docs/services.md).

    Attributes:
        service: name of the service, "" if the protocol names none.
    """

    def __init__(self, service: str, reason: str) -> None:
        self.service, self.reason = service, reason
        super().__init__(service, reason)

    def __str__(self) -> str:
        return f"call{' of ' + self.service if self.service else ''}: {self.reason}"


class CallTimeout(CallError):
    """No reply came from `addresses` within `seconds`, after `tries` tries. The work may be done or not.

    Attributes:
        obstacles: reasons why connections fail, if a command has found any; "" otherwise.
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
    """No reply came, and the service has no worker. The request may still wait for one."""

    exit_code = 24


class CallRefused(CallError):
    """The service refused a call, and would refuse it again. `code` is the code of its protocol, such as "501"."""

    exit_code = 25

    def __init__(self, service: str, code: str, reason: str) -> None:
        self.code = code
        super().__init__(service, f"refused with {code}: {reason}")
        self.args = service, code, reason


class HandlerOverran(PubsubError):
    """A handler ran for longer than `seconds`, the handler time-out of its worker.

    A coroutine is cancelled. A function cannot be stopped, so the worker's process ends with this exit code.
    """

    exit_code = 35

    def __init__(self, service: str, seconds: float) -> None:
        self.service, self.seconds = service, seconds
        super().__init__(service, seconds)

    def __str__(self) -> str:
        return f"the handler of {self.service or 'this service'} has run for longer than {self.seconds:g} s"
