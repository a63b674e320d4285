"""Define the errors of calls that get no reply (docs/clients.md, *Calls that happen once*).

The outcome of such a call is known, with one exception:

* `CallKept`: the call continues.
* `CallOver`: the call has had no effect, and will have none.
* `CallDiscarded`: the request was discarded by hand; a worker may have handled it before.

A call of the Guide's patterns ends differently: the client gives the call up, and a worker may have handled it or not.
See `pubsub.services.errors`.

A replay and a read have errors of their own: `StartGone`, `HistoryChanged`, `RangeLoss`
(docs/explanation/looking-back.md).
"""

from __future__ import annotations

from shlex import quote

from pubsub.errors import CallerError, DataLoss, PubsubError, Unavailable


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


class StartGone(PubsubError):
    """No server holds the message at which a subscription or a read should start.

    Attributes:
        topic: its topic.
        oldest: position of the oldest message that is held; "" if none is.
    """

    exit_code = 36

    def __init__(self, topic: str, oldest: str) -> None:
        self.topic, self.oldest = topic, oldest
        super().__init__(topic, oldest)

    def __str__(self) -> str:
        held = f"the oldest one is {self.oldest}" if self.oldest else "the topic holds none"
        return f"{self.topic}: the message at the start is gone ({held}); name another start, such as earliest"


class HistoryChanged(PubsubError):
    """Two servers merged a topic while it was read, so messages before the present place may be new.

    Attributes:
        topic: the topic.
        position: the last message that was read; "" if none was.
    """

    exit_code = 37

    def __init__(self, topic: str, position: str) -> None:
        self.topic, self.position = topic, position
        super().__init__(topic, position)

    def __str__(self) -> str:
        place = f"after {self.position}" if self.position else "before its first message"
        return f"{self.topic}: two servers merged the topic during the read, {place}; read again from the start"


class RangeLoss(DataLoss):
    """Messages of a range that a program reads are lost; no subscriber is concerned.

    Attributes:
        topic, first, last, reason: as of `DataLoss`.
    """

    def __str__(self) -> str:
        return f"{self.topic}: records {self.first} to {self.last} are lost ({self.reason}); skip_lost passes over them"
