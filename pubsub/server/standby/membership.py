"""Membership checks: whether a member may follow this primary, and the refusal sent if it may not.

A new member with the address of another server would wait permanently. A member that names other proxies would count
another majority. FOLLOW therefore names the proxies, and a wrong one gets a refusal. A member that already has a store
waits after a refusal, because the address may be right again later.

The rule is docs/explanation/register.md, R12.
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
    """Return 16 hex digits that identify a set of proxies in FOLLOW, in any order."""
    return sha256("\n".join(sorted(set(proxies))).encode()).hexdigest()[:16]


def see_whom(settings: ServerSettings, address: str) -> None:
    """Check that a new member knows the server to copy.

    Args:
        settings: of the new member.
        address: its own address.

    Raises:
        ConfigurationError: `standby_of` is missing, or names the member itself.
    """
    if settings.standby_of is None:
        raise ConfigurationError(f"{settings.directory} has no copy of a store: start the member with --standby-of")
    if settings.standby_of in parse_endpoint(address):
        raise ConfigurationError(f"--standby-of {settings.standby_of} is this process itself: name the other member")


def refusal(asked: Follow, server: str, proxies: Iterable[str], members: Iterable[str] = ()) -> str:
    """Return the reason against a FOLLOW as one word, "" if the member may follow.

    Args:
        asked: the FOLLOW.
        server: ID of this server.
        proxies: of this server.
        members: of this server's store, if it has two and the sender is neither; otherwise empty.
    """
    if asked.sender != server:
        return OTHER_SERVER + server
    if asked.proxies not in {"", digest(proxies)}:
        return OTHER_PROXIES
    return TWO_ALREADY + "_".join(members) if members else ""


def may_follow(state: State, origin: Origin, message: Message, members: Iterable[str] = ()) -> bool:
    """Return True for an allowed FOLLOW with an accepted key. Answer a refused FOLLOW with the reason.

    Args:
        state: of the server.
        origin: of the message.
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
    """Return the members of a store that has no room for `asking`; empty if it has room."""
    members = () if view is None else view.members
    return members if len(members) == MEMBERS_MAX and asking not in members else ()


def is_of_standby(leading: Leading | None, message: Message) -> bool:
    """Return True for a FOLLOW of the current standby. Its entries are sent to the address the FOLLOW came from."""
    return isinstance(message, Follow) and leading is not None and leading.standby == message.member


def sentence(reason: str, server: str, address: str) -> str:
    """Return the error text for a refused FOLLOW.

    Args:
        reason: the result of `refusal`.
        server: ID of the member that asked.
        address: the address that it asked.
    """
    if reason.startswith(OTHER_SERVER):
        return f"{address} is server {reason.removeprefix(OTHER_SERVER)}, not {server}: correct --standby-of or --id"
    if reason == OTHER_PROXIES:
        return f"server {server} at {address} names other proxies: give both members the same proxies"
    if reason.startswith(TWO_ALREADY):
        both = reason.removeprefix(TWO_ALREADY).replace("_", " and ")
        return f"server {server} has two members already ({both}): run pubsub server remove {server} --member ID"
    return f"{address} refuses this member as a standby: {reason.replace('_', ' ')}"
