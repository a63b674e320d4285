"""Calls as messages: what a request and a reply say beside their bodies (docs/clients.md, *Calls that happen once*).

A request is a message of the service's topic, a reply one of the caller's. The call's ID is in both, so that a reply
finds its call however late it comes. A reply goes to its caller's own topic and to no other that a request may name:
else whoever may call a service could have its worker put anything anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from zlib import crc32

from pubsub.base.limits import SERVICE_PARTS_MAX
from pubsub.client.core.message import Message
from pubsub.client.errors import CallDiscarded, CallExpired, CallFailed, CallOver
from pubsub.errors import CallerError, DecodeError, InvalidName
from pubsub.protocol import check_id, decode_headers, encode_headers
from pubsub.protocol.batch import decode_blocks
from pubsub.protocol.names import is_id, is_service_topic, reply_topic, service_topic

RESERVED: Final = "pubsub-"
"""How the names of our own headers begin."""

ID: Final = "pubsub-call"
REPLY_TO: Final = "pubsub-reply-to"
DEADLINE: Final = "pubsub-deadline"
OUTCOME: Final = "pubsub-outcome"

WAITING, DONE, FAILED, EXPIRED, DISCARDED = "waiting", "done", "failed", "expired", "discarded"
"""What has become of a call. One that is discarded may have been taken before: a reply that comes is kept."""

ERROR_CHARACTERS_MAX: Final = 1_000
"""Of what an error reply says."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call as its worker's handler sees it.

    Attributes:
        id: the call's, made or named by its caller.
        caller: the caller's client ID.
        body, key, headers: what the caller gave.
        deadline: when no worker begins it any more, in seconds since 1970 by the caller's clock; None: never.
        message: as it came.
    """

    id: str
    caller: str
    body: bytes
    key: bytes
    headers: Mapping[str, bytes]
    deadline: float | None
    message: Message

    @property
    def reply_topic(self) -> str:
        """Where its reply goes."""
        return reply_topic(self.caller)

    @property
    def doubtful(self) -> bool:
        """Whether a worker that lost its state directory may have processed the call, as `Message.doubtful`."""
        return self.message.doubtful


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a call.

    Attributes:
        id: the call's.
        service: that was called.
        body: what the handler returned.
    """

    id: str
    service: str
    body: bytes


@dataclass(frozen=True, slots=True)
class CallState:
    """A call as its client keeps it.

    Attributes:
        id, service: which.
        made: when, in seconds since 1970.
        deadline: seconds since 1970 by this client's clock; None: none.
        outcome: waiting, done, failed, expired or discarded.
        body: of the reply, or what its error says; None while there is none.
        answered: when the reply was stored here, in seconds since 1970; None while there is none.
        told: whether the reply was handed over to somebody, or the request discarded, so that it may be forgotten when
            there is no room.
    """

    id: str
    service: str
    made: float
    deadline: float | None
    outcome: str
    body: bytes | None
    answered: float | None
    told: bool

    def reply(self) -> Reply:
        """The reply.

        Raises:
            CallFailed, CallExpired: it says so. CallDiscarded: there is none.
        """
        if self.outcome == DISCARDED:
            raise CallDiscarded(self.service, self.id)
        body = self.body or b""
        if self.outcome == DONE:
            return Reply(self.id, self.service, body)
        kinds: dict[str, type[CallOver]] = {FAILED: CallFailed, EXPIRED: CallExpired}
        raise kinds[self.outcome](self.service, self.id, body.decode("utf-8", "replace"))


def check_service(service: str, part: int = 0, parts: int = 1) -> None:
    """See that a service may have this name, and its workers share its calls so.

    Raises:
        InvalidName: it is no ID.
        CallerError: the part is none.
    """
    check_id("service", service)
    for name, value, low, high in (("parts", parts, 1, SERVICE_PARTS_MAX), ("part", part, 0, max(0, parts - 1))):
        if type(value) is not int or not low <= value <= high:
            raise CallerError(f"{name} is a whole number from {low} to {high}, not {value!r}")


def check_own_headers(headers: Mapping[str, bytes] | None) -> None:
    """See that a caller's headers leave ours alone.

    Raises:
        InvalidName: one begins as ours do.
    """
    for name in headers or ():
        if isinstance(name, str) and name.startswith(RESERVED):
            raise InvalidName("header name", name, f"names that begin with {RESERVED} are the calls' own")


def topic_of(service: str, key: bytes, parts: int) -> str:
    """Where a call is put: to the part that its key says, where workers share a service."""
    return service_topic(service, crc32(key) % parts, parts)


def fingerprint(topic: str, body: bytes, key: bytes, headers: Mapping[str, bytes]) -> bytes:
    """By which a call that is made again under its ID is told from another one; of two deadlines the first counts."""
    digest = sha256()
    for part in (topic.encode(), body, key, encode_headers(headers)):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def request_headers(caller: str, call: str, headers: Mapping[str, bytes], deadline: float | None) -> dict[str, bytes]:
    """A request's headers: the caller's own, and ours; `deadline` in seconds since 1970."""
    ours = {ID: call.encode("ascii"), REPLY_TO: reply_topic(caller).encode("ascii")}
    if deadline is not None:
        ours[DEADLINE] = b"%d" % max(0, int(deadline * 1000))
    return ours | dict(headers)


def requested(batches: Iterable[bytes]) -> list[str]:
    """The calls whose requests are in batches that this client has put on a service's topic."""
    found = [decode_headers(block).get(ID) for batch in batches for block in decode_blocks(batch)]
    return [call.decode("ascii") for call in found if call is not None]


def read_request(message: Message) -> Request:
    """The call that a message of a service's topic is.

    Raises:
        DecodeError: it is none, or its reply would go to somebody else than who made it.
    """
    headers = message.headers
    ours = {name: headers.pop(name, None) for name in (ID, REPLY_TO, DEADLINE)}
    call, reply_to, deadline = (None if value is None else value.decode("ascii", "replace") for value in ours.values())
    caller = message.publisher.partition("/")[0]
    if call is None or not is_id(call):
        raise DecodeError("a request without the ID of a call")
    if reply_to != reply_topic(caller):
        raise DecodeError(f"a request of {caller} whose reply would go elsewhere")
    if deadline is not None and not (deadline.isdecimal() and len(deadline) <= 15):
        raise DecodeError("a request whose deadline is no number")
    until = None if deadline is None else int(deadline) / 1000
    return Request(call, caller, message.body, message.key, headers, until, message)


def reply_headers(call: str, outcome: str) -> dict[str, bytes]:
    """A reply's headers."""
    return {ID: call.encode("ascii"), OUTCOME: outcome.encode("ascii")}


def read_reply(message: Message) -> tuple[str, str]:
    """The ID and the outcome of the call that a message of a caller's topic is a reply to.

    Raises:
        DecodeError: it is none.
    """
    headers = message.headers
    call = headers.get(ID, b"").decode("ascii", "replace")
    outcome = headers.get(OUTCOME, b"").decode("ascii", "replace")
    if not is_id(call) or outcome not in {DONE, FAILED, EXPIRED}:
        raise DecodeError("a message that is no reply")
    return call, outcome


def error_body(text: str) -> bytes:
    """The body of an error reply."""
    return text[:ERROR_CHARACTERS_MAX].encode("utf-8", "replace")


def service_of(topic: str) -> str:
    """The service whose topic this is; "" where it is none's."""
    return topic.partition(".")[2].partition(":")[0] if is_service_topic(topic) else ""
