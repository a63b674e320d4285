"""Define the error tree: one base class, then one branch for each party at fault.

Each error carries its facts as attributes and builds its one-line text from them. A program can act on the attributes.
The text names the event, the object and the next step. `exit_code` is the exit code of a command that ends with the
error.

    PubsubError
      CallerError          this program asked for something impossible: InvalidName, InvalidKey, TooLarge …
      PeerError            received data breaks the protocol: DecodeError, Refused
      StorageError         the disk: StoreFull, StoreDamaged, StoreNewer, StoreInUse, StateCopied
      ConfigurationError   a setting, an address, a key or a directory cannot be used: SettingRefused, AuthorizedRefused
      KeyRefused, NotAllowed access: no proxy accepts this key, or the key lacks the right to this operation
      Unavailable          no answer came in time; InDoubt if a put is kept and will be finished
      DataLoss, Superseded events that a subscriber learns of once
      OperatorError        an operator's request cannot be carried out: NotKnown, ServerSilent, NotNow

Calls and requests have branches of their own: `pubsub.client.errors`, `pubsub.services.errors`, `pubsub.http.errors`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote

_NAMES_MAX = 10
_SECRET_KEY = re.compile(r"\bsk_[A-Za-z0-9_-]{16,}")
_WHOLE_SECRET_KEY = re.compile(r"sk_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])")

THIS_PROCESS = "this process"
"""Value of `StoreInUse.owner` if the current process itself has the directory open."""


def without_secrets(text: str) -> str:
    """Return the text with each secret key replaced, in case a user gave a key where something else belongs."""
    return _WHOLE_SECRET_KEY.sub("(a secret key)", text)


class PubsubError(Exception):
    """Base of every error that this package raises on purpose.

    Attributes:
        exit_code: exit code of a command that ends with this error.
        options: options by which commands in the text find the failing client; "" for errors of other roles.
    """

    exit_code = 1
    options = ""


class CallerError(PubsubError):
    """The caller asked for something that cannot be done; nothing was sent and nothing was written."""

    exit_code = 2


class InvalidName(CallerError):
    """A topic, client ID or server ID breaks the naming `rule` (docs/explanation/protocol.md, V4)."""

    def __init__(self, kind: str, value: object, rule: str) -> None:
        self.kind, self.value, self.rule = kind, value, rule
        super().__init__(kind, value, rule)

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "…'"
        return f"{self.kind} {shown} is not allowed: {self.rule}"


class InvalidKey(CallerError):
    """A text is not a valid key; `reason` names the broken rule. The text is not kept: it may be a secret key."""

    def __init__(self, reason: str, what: str = "this key") -> None:
        self.reason, self.what = reason, what
        super().__init__(reason, what)

    def __str__(self) -> str:
        return f"{self.what} is not allowed: {self.reason}"


class TooLarge(CallerError):
    """A body, a batch or a queue exceeds the limit `name` (docs/limits.md); `size` is in the unit of `limit`."""

    def __init__(self, what: str, size: int, limit: int, name: str) -> None:
        self.what, self.size, self.limit, self.name = what, size, limit, name
        super().__init__(what, size, limit, name)

    def __str__(self) -> str:
        return f"{self.what} is {self.size:,}, above the limit {self.name} = {self.limit:,}"


class AfterFork(CallerError):
    """An object opened before a fork was used in the child. It still works in the process with the ID `parent`."""

    def __init__(self, what: str, parent: int) -> None:
        self.what, self.parent = what, parent
        super().__init__(what, parent)

    def __str__(self) -> str:
        return (
            f"{self.what} was opened in process {self.parent}, before it forked this one, and works only there; "
            "open one here, after the fork and under a name of its own"
        )


class Interrupted(CallerError):
    """An exception of a signal handler interrupted the client and ended this call. The next call continues."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(what)

    def __str__(self) -> str:
        return (
            f"an exception of a signal handler interrupted {self.what} and ended this call; "
            "the next call continues from the state on disk, and unfinished puts are kept"
        )


class HandlerMisused(CallerError):
    """A handler is built in a way that cannot work; the failed call does not count as an attempt.

    Examples: it is a generator function, or one of its statements ends the transaction.
    """


class NoSuchClient(CallerError):
    """A command names a client without state in `directory`; `others` have state there. Nothing was made."""

    exit_code = 20

    def __init__(self, client: str, directory: str, others: Sequence[str]) -> None:
        self.client, self.directory, self.others = client, directory, others
        super().__init__(client, directory, others)

    def __str__(self) -> str:
        names = ", ".join(self.others[:_NAMES_MAX]) + (" …" if len(self.others) > _NAMES_MAX else "")
        there = f"there are: {names}" if names else "there is none"
        return f"there is no client {self.client} in {self.directory} ({there}); its first subscribe or put creates it"


class NotSubscribed(CallerError):
    """The client is not subscribed to the topic of a get or an unsubscribe.

    Attributes:
        never: True for an unsubscribe, if the client never subscribed to the topic from this state directory.
        group: the consumer group that the call names; "": none.
    """

    exit_code = 6

    def __init__(self, client: str, topic: str, *, never: bool = False, group: str = "") -> None:
        self.client, self.topic, self.never, self.group = client, topic, never, group
        super().__init__(client, topic)

    def __str__(self) -> str:
        topic = quote(self.topic)  # A topic may contain characters that a shell would interpret.
        if self.never:
            return (
                f"client {self.client} never subscribed to {self.topic} from this state directory; nothing was changed."
                f" To end a subscription from another one: pubsub topic unsubscribe {topic} --subscriber {self.client}"
            )
        what = f"no member of group {self.group} of" if self.group else "not subscribed to"
        call = f"pubsub client {self.client} subscribe {topic}{self.group and f' --group {self.group}'}{self.options}"
        return f"client {self.client} is {what} {self.topic}; {'join it' if self.group else 'subscribe'} first: {call}"


class PeerError(PubsubError):
    """Data received from a peer breaks the protocol."""


class DecodeError(PeerError):
    """Received bytes are not a valid message; `reason` names the broken rule."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return f"not a valid message: {self.reason}"


class Refused(PeerError):
    """A server or proxy rejected a request because of its content; a repeat would be rejected again."""

    def __init__(self, operation: str, topic: str, reason: str) -> None:
        self.operation, self.topic, self.reason = operation, topic, reason
        super().__init__(operation, topic, reason)

    def __str__(self) -> str:
        return f"{self.operation} on {self.topic} was refused: {self.reason}"


class StorageError(PubsubError):
    """The disk cannot do the operation; no acknowledged data is lost."""

    exit_code = 7

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class StoreFull(StorageError):
    """The disk has no space for new data; stored data can still be read and acknowledged."""


class StoreDamaged(StorageError):
    """The file's content differs from the content that was written."""


class StoreNewer(StorageError):
    """A newer release wrote the file in format `found`; this release reads formats up to `known`."""

    def __init__(self, path: str, found: int, known: int) -> None:
        self.found, self.known = found, known
        super().__init__(path, f"written in format {found} by a newer release; this one knows up to {known}: upgrade")
        self.args = path, found, known


class StoreInUse(StorageError):
    """Another process, or this process, already has the directory open.

    Attributes:
        owner: the process that has it open, or `THIS_PROCESS`.
        remedy: advice appended to the text if more is known about the cause; otherwise "".
    """

    exit_code = 9
    remedy = ""

    def __init__(self, path: str, owner: str) -> None:
        self.owner = owner
        here = "in use by this very process; use the object that is open already (any thread may), or close it first"
        super().__init__(path, here if owner == THIS_PROCESS else f"in use by another process ({owner}); one at a time")
        self.args = path, owner

    def __str__(self) -> str:
        return f"{super().__str__()}{self.remedy if self.owner != THIS_PROCESS else ''}"


class StateCopied(StorageError):
    """A client's state was used twice, or is an older copy, as a restored database is; `evidence` shows it."""

    exit_code = 10

    def __init__(self, client: str, path: str, evidence: str) -> None:
        self.client, self.evidence = client, evidence
        super().__init__(path, evidence)
        self.args = client, path, evidence

    def __str__(self) -> str:
        what = "a copy of this state directory was used elsewhere"
        if self.path.startswith("postgresql://"):
            what = "the database is behind the records of its servers, or a copy of it was used elsewhere"
        return f"{self.path}: {what} ({self.evidence}); run: pubsub client {self.client} renew{self.options}"


class ConfigurationError(PubsubError):
    """A setting, an address or a directory cannot be used."""

    exit_code = 8


class SettingRefused(ConfigurationError):
    """A setting has a value outside its allowed range.

    Attributes:
        value: the rejected value; a secret key is masked.
        origin: the place of the value, such as an option or a file; "" if a program set it.
    """

    def __init__(self, role: str, setting: str, value: object, allowed: str, origin: str = "") -> None:
        if setting == "database" or _SECRET_KEY.search(repr(value)):
            value = "(a URL)" if setting == "database" else "(a secret key)"
        self.role, self.setting, self.value, self.allowed, self.origin = role, setting, value, allowed, origin
        super().__init__(role, setting, value, allowed, origin)

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "…"
        place = f" (from {self.origin})" if self.origin else ""
        return f"{self.role} {self.setting} = {shown}{place} is not allowed; allowed: {self.allowed}"


class AuthorizedRefused(ConfigurationError):
    """The access list cannot be used; `line` is the number of the faulty line, 0 if the whole file is at fault."""

    def __init__(self, line: int, reason: str, path: str = "") -> None:
        self.line, self.reason, self.path = line, reason, path
        super().__init__(line, reason, path)

    def __str__(self) -> str:
        place = f", line {self.line}" if self.line else ""
        return f"{self.path or 'authorized'}{place}: {self.reason}"


class KeyRefused(PubsubError):
    """No proxy accepts this process: its key is not authorized, or the proxy's key differs from the expected one.

    Unfinished puts are kept. They go out with the next put on their topic, or with `flush`, after a proxy accepts the
    key. `reason` names the cause and the remedy for each proxy.
    """

    exit_code = 21

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return self.reason


class NotAllowed(PubsubError):
    """The key of this process lacks the right to the operation; an unfinished put is kept.

    Attributes:
        topic: the topic; "" if the operation has none.
        reason: the proxy's answer, such as `client alice may not put to orders`.
        remedy: the next step for the user; "" if nothing is kept.
    """

    exit_code = 22

    def __init__(self, operation: str, topic: str, reason: str, remedy: str = "") -> None:
        self.operation, self.topic, self.reason, self.remedy = operation, topic, reason, remedy
        super().__init__(operation, topic, reason, remedy)

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


class Unavailable(PubsubError):
    """No proxy or server answered within the time-out; the operation may or may not have happened.

    Attributes:
        seconds: the time-out.
        reason: the last known cause; "" if none is known.
    """

    exit_code = 4

    def __init__(self, operation: str, topic: str, seconds: float, reason: str = "") -> None:
        self.operation, self.topic, self.seconds, self.reason = operation, topic, seconds, reason
        super().__init__(operation, topic, seconds, reason)

    def __str__(self) -> str:
        # A server's reason is one header word with underscores. A longer reason may name a variable and stays as it is.
        reason = self.reason if " " in self.reason else self.reason.replace("_", " ")
        tail = f" ({reason})" if reason else ""
        return f"{self.operation} on {self.topic}: no success within {self.seconds:g} s{tail}"


class InDoubt(Unavailable):
    """A put got no answer in time. It is kept and goes out once, with the next put on its topic or with `flush`.

    Attributes:
        unfinished: number of unfinished messages on the topic.
    """

    exit_code = 5

    def __init__(self, client: str, topic: str, seconds: float, reason: str, unfinished: int) -> None:
        super().__init__("put", topic, seconds, reason)
        self.client, self.unfinished = client, unfinished
        self.args = client, topic, seconds, reason, unfinished

    def __str__(self) -> str:
        client = f"pubsub client {self.client}"
        return (
            f"{super().__str__()}; {self.unfinished} unfinished on this topic are kept. "
            f"Finish: {client} flush{self.options}; give up: {client} discard {quote(self.topic)}{self.options}"
        )


class DataLoss(PubsubError):
    """Records `first` to `last` (positions) were lost before this subscriber received them.

    After a deletion of the topic both are "" if nothing of it is known to be lost; `reason` tells. The error is
    raised once, and the next call continues after the lost records. If the process ends before that next call, the
    error is raised once more after the restart. Messages put after the error arrive. The next call may have to wait
    for the service, because a subscription that was lost with its log is made again first.
    """

    exit_code = 11

    def __init__(self, topic: str, first: str, last: str, reason: str) -> None:
        self.topic, self.first, self.last, self.reason = topic, first, last, reason
        super().__init__(topic, first, last, reason)

    def __str__(self) -> str:
        lost = f"records {self.first} to {self.last} are lost ({self.reason}); kept as a dead letter"
        return f"{self.topic}: {lost if self.first else self.reason}"


class Superseded(PubsubError):
    """Another process opened this client later, elsewhere, and receives its messages now.

    Attributes:
        reason: another cause for the end of the delivery; "" if the client was opened elsewhere.
    """

    exit_code = 12

    def __init__(self, client: str, topic: str, reason: str = "") -> None:
        self.client, self.topic, self.reason = client, topic, reason
        super().__init__(client, topic, reason)

    def __str__(self) -> str:
        if self.reason:
            return f"client {self.client} no longer receives {self.topic}: {self.reason}; to continue, subscribe again"
        return f"client {self.client} was opened elsewhere later; {self.topic} is delivered there now"


class OperatorError(PubsubError):
    """An operator's request cannot be carried out in the present state; nothing was changed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return self.reason


class NotKnown(OperatorError):
    """No proxy knows the topic or the server, or the topic has no such subscriber."""

    exit_code = 13


class ServerSilent(OperatorError):
    """The server that must carry out the request sends no heartbeats."""

    exit_code = 14


class NotNow(OperatorError):
    """The present state forbids the request: a topic is contested or in transfer, a server is draining or still
    alive.
    """

    exit_code = 15


NotLetIn, NotHeard = KeyRefused, ServerSilent  # The old names, for one release.
