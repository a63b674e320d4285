"""Encode calls as messages: the headers of requests and replies (docs/clients.md, *Calls that happen once*).

A request is a message of the service's topic; a reply is a message of the caller's topic. Both carry the call's ID, so
a reply finds its call however late it comes. A reply goes only to the topic of its caller, never to a topic that the
request names. Otherwise a client with the right to call a service could make its worker put messages to any topic.

The rule is docs/explanation/calls.md, X4.
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
"""Prefix of the headers that calls use themselves."""

ID: Final = "pubsub-call"
REPLY_TO: Final = "pubsub-reply-to"
DEADLINE: Final = "pubsub-deadline"
OUTCOME: Final = "pubsub-outcome"

WAITING, DONE, FAILED, EXPIRED, DISCARDED = "waiting", "done", "failed", "expired", "discarded"
"""Outcomes of a call. A worker may have taken a discarded call before, so a later reply is kept."""

ERROR_CHARACTERS_MAX: Final = 1_000
"""Longest text of an error reply."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call as the worker's handler receives it.

    Attributes:
        id: ID of the call.
        caller: client ID of the caller.
        body, key, headers: as given by the caller.
        deadline: time from which no worker begins the call, in seconds since 1970 by the caller's clock; None: never.
        message: the received message.
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
        """Topic of the reply."""
        return reply_topic(self.caller)

    @property
    def doubtful(self) -> bool:
        """True if a worker that lost its state directory may have processed the call, as `Message.doubtful`."""
        return self.message.doubtful


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a call.

    Attributes:
        id: ID of the call.
        service: name of the service.
        body: the handler's return value.
    """

    id: str
    service: str
    body: bytes


@dataclass(frozen=True, slots=True)
class CallState:
    """A call as its client keeps it.

    Attributes:
        id: ID of the call.
        service: name of the service.
        made: time of the call, in seconds since 1970.
        deadline: in seconds since 1970 by this client's clock; None: none.
        outcome: `waiting`, `done`, `failed`, `expired` or `discarded`.
        body: body of the reply, or the text of its error; None while there is no reply.
        answered: time at which the reply was stored here, in seconds since 1970; None while there is no reply.
        told: True if the reply was handed over or the request discarded, so that the call may be forgotten to make
            room.
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
        """Return the reply.

        Raises:
            CallFailed, CallExpired: the reply is an error.
            CallDiscarded: the request was discarded.
        """
        if self.outcome == DISCARDED:
            raise CallDiscarded(self.service, self.id)
        body = self.body or b""
        if self.outcome == DONE:
            return Reply(self.id, self.service, body)
        kinds: dict[str, type[CallOver]] = {FAILED: CallFailed, EXPIRED: CallExpired}
        raise kinds[self.outcome](self.service, self.id, body.decode("utf-8", "replace"))


def check_service(service: str, part: int = 0, parts: int = 1) -> None:
    """Check a service's name and a worker's share of its calls.

    Raises:
        InvalidName: the name is not an ID.
        CallerError: `part` or `parts` is out of range.
    """
    check_id("service", service)
    for name, value, low, high in (("parts", parts, 1, SERVICE_PARTS_MAX), ("part", part, 0, max(0, parts - 1))):
        if type(value) is not int or not low <= value <= high:
            raise CallerError(f"{name} is a whole number from {low} to {high}, not {value!r}")


def check_own_headers(headers: Mapping[str, bytes] | None) -> None:
    """Reject a caller's headers with our reserved prefix.

    Raises:
        InvalidName: a header name has the prefix.
    """
    for name in headers or ():
        if isinstance(name, str) and name.startswith(RESERVED):
            raise InvalidName("header name", name, f"names that begin with {RESERVED} are the calls' own")


def topic_of(service: str, key: bytes, parts: int) -> str:
    """Return the topic of a call; if workers share the service, the call's key selects the part."""
    return service_topic(service, crc32(key) % parts, parts)


def fingerprint(topic: str, body: bytes, key: bytes, headers: Mapping[str, bytes]) -> bytes:
    """Hash a request, to tell a repeat under an ID from a different call. A repeat may have another deadline."""
    digest = sha256()
    for part in (topic.encode(), body, key, encode_headers(headers)):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def request_headers(caller: str, call: str, headers: Mapping[str, bytes], deadline: float | None) -> dict[str, bytes]:
    """Add our headers to the caller's; `deadline` is in seconds since 1970."""
    ours = {ID: call.encode("ascii"), REPLY_TO: reply_topic(caller).encode("ascii")}
    if deadline is not None:
        ours[DEADLINE] = b"%d" % max(0, int(deadline * 1000))
    return ours | dict(headers)


def requested(batches: Iterable[bytes]) -> list[str]:
    """Return the IDs of all calls requested in batches that this client has put on a service's topic."""
    found = [decode_headers(block).get(ID) for batch in batches for block in decode_blocks(batch)]
    return [call.decode("ascii") for call in found if call is not None]


def read_request(message: Message) -> Request:
    """Decode a message of a service's topic as a call.

    Raises:
        DecodeError: the message is not a request, or names a reply topic other than its sender's.
    """
    headers = message.headers
    ours = {name: headers.pop(name, None) for name in (ID, REPLY_TO, DEADLINE)}
    call, reply_to, deadline = (None if value is None else value.decode("ascii", "replace") for value in ours.values())
    caller = message.publisher.partition("/")[0]
    if call is None or not is_id(call):
        raise DecodeError("a request without the ID of a call")
    if reply_to != reply_topic(caller):
        raise DecodeError(f"a request of {caller} with a reply topic of another client")
    if deadline is not None and not (deadline.isdecimal() and len(deadline) <= 15):
        raise DecodeError("a request with a deadline that is not a number")
    until = None if deadline is None else int(deadline) / 1000
    return Request(call, caller, message.body, message.key, headers, until, message)


def reply_headers(call: str, outcome: str) -> dict[str, bytes]:
    """Encode a reply's headers: the call's ID and one of the outcomes DONE, FAILED and EXPIRED."""
    return {ID: call.encode("ascii"), OUTCOME: outcome.encode("ascii")}


def read_reply(message: Message) -> tuple[str, str]:
    """Decode a message of a caller's topic as a reply; return the ID and the outcome of the call.

    Raises:
        DecodeError: the message is not a reply.
    """
    headers = message.headers
    call = headers.get(ID, b"").decode("ascii", "replace")
    outcome = headers.get(OUTCOME, b"").decode("ascii", "replace")
    if not is_id(call) or outcome not in {DONE, FAILED, EXPIRED}:
        raise DecodeError("a message that is not a reply")
    return call, outcome


def error_body(text: str) -> bytes:
    """Encode the text of an error reply, cut to ERROR_CHARACTERS_MAX characters."""
    return text[:ERROR_CHARACTERS_MAX].encode("utf-8", "replace")


def service_of(topic: str) -> str:
    """Return the service with this topic; "" if it is not a service's topic."""
    return topic.partition(".")[2].partition(":")[0] if is_service_topic(topic) else ""
