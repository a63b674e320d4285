"""Who may follow a server: what is said to a member that may not, and what that member says of it then.

A member that begins and was given the address of somebody else would wait for ever, and one whose proxies are others
would count another majority. So FOLLOW names the proxies, and is answered by a refusal where it came to the wrong door.
A member that has a store already waits: the address may be the right one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

from pubsub.config.settings import ServerSettings
from pubsub.errors import ConfigurationError
from pubsub.protocol.messages import Message, Outcome
from pubsub.protocol.names import parse_endpoint
from pubsub.protocol.register import MEMBERS_MAX, View
from pubsub.protocol.standby import Follow
from pubsub.server.standby.replication.primary import Leading
from pubsub.server.state.replies import LISTENER, Origin
from pubsub.server.state.state import State

OTHER_SERVER: Final = "it_is_server_"
OTHER_PROXIES: Final = "it_has_other_proxies"
TWO_ALREADY: Final = "two_members_already_"


def digest(proxies: Iterable[str]) -> str:
    """What stands for a set of proxies in FOLLOW: 16 hex digits, in whatever order they are named."""
    return sha256("\n".join(sorted(set(proxies))).encode()).hexdigest()[:16]


def see_whom(settings: ServerSettings, address: str) -> None:
    """See that a member that begins is told whose store it is to copy.

    Args:
        settings: its own.
        address: where it is reached.

    Raises:
        ConfigurationError: it is not, or that is itself.
    """
    if settings.standby_of is None:
        raise ConfigurationError(f"{settings.directory} holds no copy yet: start it with --standby-of")
    if settings.standby_of in parse_endpoint(address):
        raise ConfigurationError(f"{settings.standby_of} is this server itself: a standby is another process")


def refusal(asked: Follow, server: str, proxies: Iterable[str], members: Iterable[str] = ()) -> str:
    """Why a member may not follow this server, as one word; "" where it may.

    Args:
        asked: what it says.
        server: this one's ID.
        proxies: this one's.
        members: those of its store, where that has two and the one who asks is none of them.
    """
    if asked.sender != server:
        return OTHER_SERVER + server
    if asked.proxies not in {"", digest(proxies)}:
        return OTHER_PROXIES
    return TWO_ALREADY + "_".join(members) if members else ""


def may_follow(state: State, origin: Origin, message: Message, members: Iterable[str] = ()) -> bool:
    """Whether this is a member that asks to follow and may, as far as its key tells; one that may not is told why.

    Args:
        state: the server's.
        origin: where the message came from.
        message: as decoded.
        members: as for `refusal`.
    """
    settings = state.settings
    if not isinstance(message, Follow) or origin.link != LISTENER or origin.speaker not in {None, settings.id}:
        return False
    reason = refusal(message, settings.id, settings.proxies, members)
    if reason:
        state.replies.answer(origin, Outcome.REFUSED, reason=reason)
    return not reason


def occupants(view: View | None, asking: str) -> Sequence[str]:
    """The members of a store, where there is no room for the one who asks; none where there is."""
    members = () if view is None else view.members
    return members if len(members) == MEMBERS_MAX and asking not in members else ()


def is_of_standby(leading: Leading | None, message: Message) -> bool:
    """Whether this is a FOLLOW of the member that entries are sent to: they go where it came from."""
    return isinstance(message, Follow) and leading is not None and leading.standby == message.member


def sentence(reason: str, server: str, address: str) -> str:
    """What a person is told of a refusal.

    Args:
        reason: as `refusal` said it.
        server: the ID of the member that asked.
        address: whom it asked.
    """
    if reason.startswith(OTHER_SERVER):
        return f"{address} is server {reason.removeprefix(OTHER_SERVER)}, and not {server}, whose standby this is to be"
    if reason == OTHER_PROXIES:
        return f"server {server} at {address} names other proxies: both members of a server name the same ones"
    if reason.startswith(TWO_ALREADY):
        both = reason.removeprefix(TWO_ALREADY).replace("_", " and ")
        return f"server {server} has two members already, {both}: pubsub server remove {server} --member ID"
    return f"{address} does not let this member follow: {reason.replace('_', ' ')}"
