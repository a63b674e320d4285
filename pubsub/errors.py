"""The error tree: one base, then by whose fault it is.

Every error carries its facts as attributes and builds its one-line text from them, so that a program can act on the
facts and a person reads what happened, to what, and what to do next. `exit_code` is what the commands end with.

    PubsubError
      CallerError          this program asked for something that cannot be: InvalidName, InvalidKey, TooLarge …
      PeerError            what arrived breaks the protocol: DecodeError, Refused
      StorageError         the disk: StoreFull, StoreDamaged, StoreNewer, StoreInUse, StateCopied
      ConfigurationError   a setting, an address, a key or a directory cannot be used: SettingRefused, AuthorizedRefused
      NotLetIn, NotAllowed the keys: no proxy lets this one in, or it has no right to what was asked
      Unavailable          nobody answered in time; InDoubt where a put is kept and will be finished
      DataLoss, Superseded what a subscriber must be told once
      OperatorError        what an operator asked for cannot be done: NotKnown, NotHeard, NotNow

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
"""The owner of what this very process has open already."""


def without_secrets(text: str) -> str:
    """The text with no secret key in it, which somebody may have given where something else belongs."""
    return _WHOLE_SECRET_KEY.sub("(a secret key)", text)


class PubsubError(Exception):
    """Base of every error that this package raises on purpose.

    Attributes:
        options: of a client's error, those with which the commands that it names find the same client.
    """

    exit_code = 1
    options = ""


class CallerError(PubsubError):
    """The caller asked for something that cannot be done; nothing was sent and nothing was written."""

    exit_code = 2


class InvalidName(CallerError):
    """A topic, client ID or server ID that the protocol does not allow (docs/architecture.md, *The protocol*)."""

    def __init__(self, kind: str, value: object, rule: str) -> None:
        self.kind, self.value, self.rule = kind, value, rule
        super().__init__(kind, value, rule)

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "…'"
        return f"{self.kind} {shown} is not allowed: {self.rule}"


class InvalidKey(CallerError):
    """A text that is no key; `reason` says why. The text is not kept: it may be a secret one."""

    def __init__(self, reason: str, what: str = "this key") -> None:
        self.reason, self.what = reason, what
        super().__init__(reason, what)

    def __str__(self) -> str:
        return f"{self.what} is not allowed: {self.reason}"


class TooLarge(CallerError):
    """A body, batch or queue beyond its named limit."""

    def __init__(self, what: str, size: int, limit: int, name: str) -> None:
        self.what, self.size, self.limit, self.name = what, size, limit, name
        super().__init__(what, size, limit, name)

    def __str__(self) -> str:
        return f"{self.what} is {self.size:,}, above the limit {self.name} = {self.limit:,}"


class AfterFork(CallerError):
    """Something that was opened before a fork was used in the child; what it did in the parent goes on there."""

    def __init__(self, what: str, parent: int) -> None:
        self.what, self.parent = what, parent
        super().__init__(what, parent)

    def __str__(self) -> str:
        return (
            f"{self.what} was opened in process {self.parent}, before it forked this one, and works only there; "
            "open one here, after the fork and under a name of its own"
        )


class Interrupted(CallerError):
    """An exception of a signal's handler cut a step of the client off, and ended this call; the next one goes on."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(what)

    def __str__(self) -> str:
        return (
            f"an exception of a signal's handler interrupted {self.what} in a step, which ended this call; "
            "the next call goes on from what is on the disk: unfinished puts are kept"
        )


class HandlerMisused(CallerError):
    """A handler cannot do its work in the way it is made: it is a generator, or one of its statements (or of a `with`
    block's) ends the transaction, say. It counts as no attempt."""


class NoSuchClient(CallerError):
    """A command asks for a client that is not there; `others` are. Nothing was made."""

    exit_code = 20

    def __init__(self, client: str, directory: str, others: Sequence[str]) -> None:
        self.client, self.directory, self.others = client, directory, others
        super().__init__(client, directory, others)

    def __str__(self) -> str:
        names = ", ".join(self.others[:_NAMES_MAX]) + (" …" if len(self.others) > _NAMES_MAX else "")
        there = f"there are: {names}" if names else "there is none"
        return f"there is no client {self.client} in {self.directory} ({there}); its first subscribe or put makes it"


class NotSubscribed(CallerError):
    """A get on a topic that this client is not subscribed to, or an unsubscribe where it `never` was."""

    exit_code = 6

    def __init__(self, client: str, topic: str, *, never: bool = False) -> None:
        self.client, self.topic, self.never = client, topic, never
        super().__init__(client, topic)

    def __str__(self) -> str:
        topic = quote(self.topic)  # Topics hold characters that a shell takes for its own.
        if self.never:
            return (
                f"client {self.client} never subscribed to {self.topic} from this state directory; nothing was changed."
                f" Of an earlier one's: pubsub topic unsubscribe {topic} --subscriber {self.client}"
            )
        return (
            f"client {self.client} is not subscribed to {self.topic}; "
            f"subscribe first: pubsub client {self.client} subscribe {topic}{self.options}"
        )


class PeerError(PubsubError):
    """What a peer sent breaks the protocol."""


class DecodeError(PeerError):
    """Bytes that are not a message; `reason` says which rule they break."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return f"not a valid message: {self.reason}"


class Refused(PeerError):
    """The service refused a request for what its bytes say; a repeat would be refused again."""

    def __init__(self, operation: str, topic: str, reason: str) -> None:
        self.operation, self.topic, self.reason = operation, topic, reason
        super().__init__(operation, topic, reason)

    def __str__(self) -> str:
        return f"{self.operation} on {self.topic} was refused: {self.reason}"


class StorageError(PubsubError):
    """The disk cannot do what was asked; nothing that was acknowledged is lost by it."""

    exit_code = 7

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class StoreFull(StorageError):
    """No space is left for new data; what is there can still be read and acknowledged."""


class StoreDamaged(StorageError):
    """The file is not what was written."""


class StoreNewer(StorageError):
    """The file was written by a newer release."""

    def __init__(self, path: str, found: int, known: int) -> None:
        self.found, self.known = found, known
        super().__init__(path, f"written in format {found} by a newer release; this one knows up to {known}: upgrade")
        self.args = path, found, known


class StoreInUse(StorageError):
    """Another process, or THIS_PROCESS, has the directory open.

    Attributes:
        remedy: what is said besides, where more is known of how this comes about; "" otherwise.
    """

    exit_code = 9
    remedy = ""

    def __init__(self, path: str, owner: str) -> None:
        self.owner = owner
        here = "in use by this very process; share what has it open there (any thread may), or close it first"
        super().__init__(path, here if owner == THIS_PROCESS else f"in use by another process ({owner}); one at a time")
        self.args = path, owner

    def __str__(self) -> str:
        return f"{super().__str__()}{self.remedy if self.owner != THIS_PROCESS else ''}"


class StateCopied(StorageError):
    """A client's state directory was used in two places, or is an older copy of itself."""

    exit_code = 10

    def __init__(self, client: str, path: str, evidence: str) -> None:
        self.client, self.evidence = client, evidence
        super().__init__(path, evidence)
        self.args = client, path, evidence

    def __str__(self) -> str:
        return (
            f"{self.path}: a copy of this state directory was used elsewhere ({self.evidence}); "
            f"run: pubsub client {self.client} renew{self.options}"
        )


class ConfigurationError(PubsubError):
    """A setting, an address or a directory that cannot be used."""

    exit_code = 8


class SettingRefused(ConfigurationError):
    """A setting has a value that it may not have; `origin`: where it was given, "" where a program gave it."""

    def __init__(self, role: str, setting: str, value: object, allowed: str, origin: str = "") -> None:
        if _SECRET_KEY.search(repr(value)):
            value = "(a secret key)"
        self.role, self.setting, self.value, self.allowed, self.origin = role, setting, value, allowed, origin
        super().__init__(role, setting, value, allowed, origin)

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "…"
        place = f" (from {self.origin})" if self.origin else ""
        return f"{self.role} {self.setting} = {shown}{place} is not allowed; allowed: {self.allowed}"


class AuthorizedRefused(ConfigurationError):
    """The file of who is authorized cannot be used; `line` says where, 0: as a whole."""

    def __init__(self, line: int, reason: str, path: str = "") -> None:
        self.line, self.reason, self.path = line, reason, path
        super().__init__(line, reason, path)

    def __str__(self) -> str:
        place = f", line {self.line}" if self.line else ""
        return f"{self.path or 'authorized'}{place}: {self.reason}"


class NotLetIn(PubsubError):
    """No proxy speaks with this process: its key is not authorized, or theirs is not the one that was named.

    What was put is kept, and goes out when a proxy lets it in, with the next put on its topic or `flush`. `reason` says
    for each proxy what is wrong, and what to do.
    """

    exit_code = 21

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return self.reason


class NotAllowed(PubsubError):
    """The key of this process has no right to what was asked; an unfinished put is kept.

    Attributes:
        operation, topic: what was asked, and of which topic, "" for none.
        reason: what the proxy said: `client alice may not put to orders`.
        remedy: what to do about it; "" where nothing is kept.
    """

    exit_code = 22

    def __init__(self, operation: str, topic: str, reason: str, remedy: str = "") -> None:
        self.operation, self.topic, self.reason, self.remedy = operation, topic, reason, remedy
        super().__init__(operation, topic, reason, remedy)

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


class Unavailable(PubsubError):
    """No proxy or server gave an answer within the call's time-out; the operation may or may not have happened."""

    exit_code = 4

    def __init__(self, operation: str, topic: str, seconds: float, reason: str = "") -> None:
        self.operation, self.topic, self.seconds, self.reason = operation, topic, seconds, reason
        super().__init__(operation, topic, seconds, reason)

    def __str__(self) -> str:
        # A server's reason is one word of a header; what is said in several may name a variable.
        reason = self.reason if " " in self.reason else self.reason.replace("_", " ")
        tail = f" ({reason})" if reason else ""
        return f"{self.operation} on {self.topic}: no success within {self.seconds:g} s{tail}"


class InDoubt(Unavailable):
    """A put that got no answer in time. It is kept and goes out, once, with the next put on its topic or `flush`."""

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
    """Records that this subscriber was to receive cannot be handed out any more.

    Raised once, and the next call goes on; once more after a start, where the process ended before that next call.
    What is put after it was raised arrives. While the service cannot be reached it may have to wait, because a
    subscription that is lost with its log is made anew first.
    """

    exit_code = 11

    def __init__(self, topic: str, first: str, last: str, reason: str) -> None:
        self.topic, self.first, self.last, self.reason = topic, first, last, reason
        super().__init__(topic, first, last, reason)

    def __str__(self) -> str:
        return f"{self.topic}: records {self.first} to {self.last} are lost ({self.reason}); kept as a dead letter"


class Superseded(PubsubError):
    """Another process opened this client later, on another host or from another directory: it is the subscriber now."""

    exit_code = 12

    def __init__(self, client: str, topic: str, reason: str = "") -> None:
        self.client, self.topic, self.reason = client, topic, reason
        super().__init__(client, topic, reason)

    def __str__(self) -> str:
        if self.reason:
            return f"client {self.client} receives {self.topic} no longer: {self.reason}; to go on, subscribe again"
        return f"client {self.client} was opened elsewhere later; {self.topic} is delivered there now"


class OperatorError(PubsubError):
    """What an operator asked for cannot be done as things stand; nothing was changed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return self.reason


class NotKnown(OperatorError):
    """No proxy knows the topic or the server, or the topic has no such subscriber."""

    exit_code = 13


class NotHeard(OperatorError):
    """The server that would have to do it is not heard."""

    exit_code = 14


class NotNow(OperatorError):
    """Something stands against it: the topic is contested or on its way, the server is draining or still heard."""

    exit_code = 15
