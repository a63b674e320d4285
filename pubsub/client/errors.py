"""Define the errors of calls that get no reply (docs/clients.md, *Calls that happen once*).

The outcome of such a call is known, with one exception:

* `CallKept`: the call continues.
* `CallOver`: the call has had no effect, and will have none.
* `CallDiscarded`: the request was discarded by hand; a worker may have handled it before.

A call of the Guide's patterns ends differently: the client gives the call up, and a worker may have handled it or not.
See `pubsub.services.errors`.
"""

from __future__ import annotations

from shlex import quote

from pubsub.errors import CallerError, PubsubError, Unavailable


class CallKept(Unavailable):
    """A call got no reply in time. It continues, happens once, and its reply is kept under its ID.

    Attributes:
        client: the client ID.
        service: name of the service.
        call: ID of the call.
        seconds: the time-out.
        reason: the cause, such as `no worker`; "" if unknown.
    """

    exit_code = 30

    def __init__(self, client: str, service: str, call: str, seconds: float, reason: str) -> None:
        super().__init__("call", service, seconds, reason)
        self.client, self.service, self.call = client, service, call
        self.args = client, service, call, seconds, reason

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        said = f"call {self.call} of {self.service}: no reply within {self.seconds:.3g} s{why}; the call continues"
        return f"{said}. Ask again: pubsub client {self.client} replies {quote(self.call)}{self.options}"


class CallOver(PubsubError):
    """A call ended without effect, and will have none.

    Attributes:
        service: name of the service.
        call: ID of the call.
        reason: the cause.
    """

    def __init__(self, service: str, call: str, reason: str) -> None:
        self.service, self.call, self.reason = service, call, reason
        super().__init__(service, call, reason)

    def __str__(self) -> str:
        return f"call {self.call} of {self.service}: {self.reason}"


class CallFailed(CallOver):
    """The handler failed as often as allowed; none of its transactions was committed."""

    exit_code = 31


class CallExpired(CallOver):
    """The deadline passed before a worker began the call."""

    exit_code = 32


class CallDiscarded(PubsubError):
    """The request of a call was discarded; a worker may have taken it before. A later reply is kept.

    Attributes:
        service: name of the service.
        call: ID of the call.
    """

    exit_code = 34

    def __init__(self, service: str, call: str) -> None:
        self.service, self.call = service, call
        super().__init__(service, call)

    def __str__(self) -> str:
        said = f"call {self.call} of {self.service}: its request was discarded, and may have been taken before"
        return f"{said}. A later reply is kept; to repeat the call, forget it first: its effect may then happen twice"


class NoSuchCall(CallerError):
    """This client has made no call with that ID, or no longer keeps its reply.

    Attributes:
        client: the client ID.
        call: the call ID.
        over: True if the call was made and its reply was handed over, then dropped to make room for newer replies.
    """

    exit_code = 33

    def __init__(self, client: str, call: str, *, over: bool = False) -> None:
        self.client, self.call, self.over = client, call, over
        super().__init__(client, call)

    def __str__(self) -> str:
        if self.over:
            return f"client {self.client} no longer keeps the reply to call {self.call}: it was handed over long ago"
        kept = f"pubsub client {self.client} replies{self.options}"
        return f"client {self.client} keeps no call {self.call}; it keeps: {kept}"
