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

from pubsub.base.plurals import counted, verb
from pubsub.errors import CallerError, DataLoss, PubsubError, StorageError, Unavailable


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


class GroupDiffers(CallerError):
    """A consumer group exists with other values than the call names. Nothing was changed.

    Attributes:
        topic, group: the group.
        reason: which value differs.
        values: those of the group, in words.
    """

    exit_code = 40

    def __init__(self, topic: str, group: str, reason: str, values: str) -> None:
        self.topic, self.group, self.reason, self.values = topic, group, reason, values
        super().__init__(topic, group, reason, values)

    def __str__(self) -> str:
        return (
            f"group {self.group} of {self.topic} exists with other values ({self.reason}; it has {self.values}):"
            " name the same ones, or none, or end the group first"
        )


class GroupEnded(PubsubError):
    """The group was ended, or ended and made again, since this client joined it.

    Attributes:
        topic, group: the group.
        again: True if there is a new group of that name.
    """

    exit_code = 41

    def __init__(self, topic: str, group: str, *, again: bool = False) -> None:
        self.topic, self.group, self.again = topic, group, again
        super().__init__(topic, group)

    def __str__(self) -> str:
        what = "was ended and made again" if self.again else "was ended"
        return f"group {self.group} of {self.topic} {what}; subscribe to it again to work for the new one"


class GroupSuspended(PubsubError):
    """A group hands out nothing, because its server runs on a restored copy; an operator must resume it.

    Attributes:
        topic, group: the group.
    """

    exit_code = 42

    def __init__(self, topic: str, group: str) -> None:
        self.topic, self.group = topic, group
        super().__init__(topic, group)

    def __str__(self) -> str:
        return (
            f"group {self.group} of {self.topic} is suspended since its server was restored from a copy; an operator"
            f" decides: pubsub group resume {quote(self.topic)} {self.group} --redeliver, or --skip"
        )


class GroupFull(PubsubError):
    """A group is at one of its limits.

    Attributes:
        topic, group: the group.
        reason: the server's word for the limit.
    """

    exit_code = 43

    def __init__(self, topic: str, group: str, reason: str) -> None:
        self.topic, self.group, self.reason = topic, group, reason
        super().__init__(topic, group, reason)

    def __str__(self) -> str:
        if self.reason == "dead_letters_full":
            command = f"pubsub group redrive {quote(self.topic)} {self.group}"
            return (
                f"group {self.group} of {self.topic} has no room for a further dead letter, so it hands out nothing:"
                f" {command} tries them again, and --drop drops them"
            )
        return f"group {self.group} of {self.topic} is at a limit: {self.reason.replace('_', ' ')}"


class ClaimLost(PubsubError):
    """A handler's record was given to another member of the group, so its transaction is rolled back.

    A statement of the handler raises it. `process` does not: it counts it, and goes on.

    Attributes:
        topic, group: the group.
        message: ID of the message.
    """

    def __init__(self, topic: str, group: str, message: str) -> None:
        self.topic, self.group, self.message = topic, group, message
        super().__init__(topic, group, message)

    def __str__(self) -> str:
        return (
            f"message {self.message} of {self.topic} does not belong to this member of group {self.group} any more; its"
            " transaction is rolled back"
        )


class GroupInDoubt(CallerError):
    """A group cannot be ended: members that are not heard hold records, and may have done them. Nothing was changed.

    Attributes:
        topic, group: the group.
        records: number of these records.
        members: the clients that hold them.
    """

    exit_code = 44

    def __init__(self, topic: str, group: str, records: int, members: tuple[str, ...]) -> None:
        self.topic, self.group, self.records, self.members = topic, group, records, members
        super().__init__(topic, group, records, members)

    def __str__(self) -> str:
        silent = ", ".join(self.members[:10]) or "a member"
        return (
            f"group {self.group} of {self.topic}: {counted(self.records, 'record')}"
            f" {verb(self.records, 'is', 'are')} in doubt at {silent}; start it again, or"
            " end the group with force"
        )


class CommitInDoubt(StorageError):
    """The connection to a client's database was lost in a commit, and the database did not say in time if it happened.

    Nothing that follows from the commit was sent. The next call of the client reads its state from the database again.
    """

    def __init__(self, path: str, seconds: float, cause: str) -> None:
        self.seconds, self.cause = seconds, cause
        super().__init__(
            path,
            f"the connection was lost in a commit, and within {seconds:g} s the database did not say if the commit "
            f"happened ({cause}); nothing that follows from it was sent, and the next call reads the state again",
        )
        self.args = path, seconds, cause


class DatabaseOlder(StorageError):
    """A client's database has lost commits that it had acknowledged: it was restored, or a replica took over.

    The next call of the client reads its state from the database, and continues from there as after a power cut.

    Attributes:
        known: number of the client's last commit.
        found: number of its last commit that the database has.
    """

    def __init__(self, path: str, known: int, found: int) -> None:
        self.known, self.found = known, found
        super().__init__(
            path,
            f"the database is older than this process: it has commit {found:,} of the client, and {known:,} was "
            "acknowledged; the next call continues from the database's state, as after a power cut",
        )
        self.args = path, known, found


class LifeEnded(StorageError):
    """A member of a group with the same database has looked this client up there, because the service had not heard it.

    Its messages went to other members, and nothing of the refused commit happened. The next call reads the state from
    the database, and continues as after a restart.
    """

    def __init__(self, path: str) -> None:
        super().__init__(
            path,
            "the service did not hear this client, so another member of a group ended its life in the database; the "
            "next call reads the state again and continues as after a restart",
        )
        self.args = (path,)
