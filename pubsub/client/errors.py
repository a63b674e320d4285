"""What a call over topics ends with, where it has no reply here (docs/clients.md, *Calls that happen once*).

Of these calls it is known what became of them: they go on (`CallKept`), or nothing of them has happened (`CallOver`);
but for one whose request was discarded by hand (`CallDiscarded`). A call of the Guide's patterns is given up instead,
and may have been done or not: `pubsub.services.errors`.
"""

from __future__ import annotations

from shlex import quote

from pubsub.errors import CallerError, PubsubError, Unavailable


class CallKept(Unavailable):
    """A call that got no reply in time. It goes on, once, and its reply is kept for whoever asks by its ID."""

    exit_code = 30

    def __init__(self, client: str, service: str, call: str, seconds: float, reason: str) -> None:
        super().__init__("call", service, seconds, reason)
        self.client, self.service, self.call = client, service, call
        self.args = client, service, call, seconds, reason

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        said = f"call {self.call} of {self.service}: no reply within {self.seconds:.3g} s{why}; it goes on, once"
        return f"{said}. Ask again: pubsub client {self.client} replies {quote(self.call)}{self.options}"


class CallOver(PubsubError):
    """A call came to nothing: nothing of it has happened, and nothing will; `call` is its ID."""

    def __init__(self, service: str, call: str, reason: str) -> None:
        self.service, self.call, self.reason = service, call, reason
        super().__init__(service, call, reason)

    def __str__(self) -> str:
        return f"call {self.call} of {self.service}: {self.reason}"


class CallFailed(CallOver):
    """The handler failed as often as it may, and nothing of what it did in its transactions has happened."""

    exit_code = 31


class CallExpired(CallOver):
    """The deadline had passed before a worker began it."""

    exit_code = 32


class CallDiscarded(PubsubError):
    """The call's request was discarded, and may have been taken before. A reply that comes later is kept."""

    exit_code = 34

    def __init__(self, service: str, call: str) -> None:
        self.service, self.call = service, call
        super().__init__(service, call)

    def __str__(self) -> str:
        said = f"call {self.call} of {self.service}: its request was discarded, and may have been taken before"
        return f"{said}. A reply that comes is kept; to make it anew, forget it first: it may happen twice then"


class NoSuchCall(CallerError):
    """This client has made no call of that ID, or keeps its reply no more.

    Attributes:
        over: it was made, and had its reply, which was handed over and had to make room for others since.
    """

    exit_code = 33

    def __init__(self, client: str, call: str, *, over: bool = False) -> None:
        self.client, self.call, self.over = client, call, over
        super().__init__(client, call)

    def __str__(self) -> str:
        if self.over:
            return f"client {self.client} keeps the reply to call {self.call} no more: it was handed over long ago"
        kept = f"pubsub client {self.client} replies{self.options}"
        return f"client {self.client} keeps no call {self.call}; it keeps: {kept}"
