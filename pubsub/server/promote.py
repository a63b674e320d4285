"""The command `pubsub server promote`, an operator's last resort; a failover does without it (`standby.member`).

It runs `standby.election.promotion` over sockets, and lets the store of a stopped member continue alone.

The order of the steps makes a crash after any of them harmless:

1. The proxies promise.
2. The store gets an entry that no other member has, so that any member with more or other entries gets a copy.
3. The store's logs end as those of a restored backup do.
4. The directory becomes that of a new member.
5. The register names the new member.

A repeated command does all steps again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import SystemRandom
from typing import Any, Final

import zmq

from pubsub.base.clock import MICROSECONDS, SystemClock, valid_wall
from pubsub.base.resources import allow_connections
from pubsub.config.settings import ServerSettings
from pubsub.errors import ConfigurationError, NotNow, Unavailable
from pubsub.messenger.wakeup import Wakeup
from pubsub.protocol.names import keyed_endpoint, keyless_endpoint
from pubsub.protocol.register import Vote
from pubsub.protocol.standby import EntryId
from pubsub.server.access import ServerAccess, keys_of
from pubsub.server.links import Links
from pubsub.server.offline.restore import Restored, end_logs
from pubsub.server.pair import decoded, framed
from pubsub.server.standby.disk.applied import keep_entry
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.member_disk import MemberDisk, new_member, open_disk
from pubsub.server.standby.election.promotion import Message, Promotion
from pubsub.server.standby.election.proposer import Identity
from pubsub.server.standby.replication.follower import Following

ASK_SECONDS: Final = 0.5
"""Interval at which unanswered requests are sent again."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """The result of a promotion.

    Attributes:
        member: the ID of the member that is now the only one.
        term: the ballot under which the register names it.
        restored: the effect on the topics.
    """

    member: str
    term: int
    restored: Restored


def promote(settings: ServerSettings, agree: Callable[[tuple[str, ...]], None]) -> Promoted:
    """Make a stopped member the only one of its store.

    Args:
        agree: called before any change with the members that are in sync as far as is known. It raises if the operator
            does not agree.

    Raises:
        NotNow: a condition forbids it now.
        Unavailable: too few proxies answered; the command may be repeated.
        ConfigurationError, StorageError: the directory is not a member's, or cannot be used, or the clock is wrong.
    """
    allow_connections()
    valid_wall(SystemClock().wall())  # The proxies would keep a ballot of a wrong clock.
    local = LocalFile(settings.directory)
    if local.local is None:
        raise ConfigurationError(f"{settings.directory} is not the directory of a member of a server with a standby")
    disk = open_disk(settings, local)
    assert disk is not None
    with contextlib.closing(disk):
        if disk.store is None:
            raise ConfigurationError(
                f"{settings.directory} holds no copy of the store yet: there is nothing to promote"
            )
        with _asking(settings) as ask:
            return _promote(settings, disk, local, ask, agree)


def _promote(
    settings: ServerSettings,
    disk: MemberDisk,
    local: LocalFile,
    ask: Callable[[dict[str, Message], Promotion], None],
    agree: Callable[[tuple[str, ...]], None],
) -> Promoted:
    assert disk.store is not None
    assert local.local is not None
    random, clock, member = SystemRandom(), SystemClock(), new_member()
    address = address_of(settings, local.local.port)
    told = keyless_endpoint(address) if settings.key_file is None else keyed_endpoint(settings.id, address)
    identity = Identity(settings.id, disk.store.store_id, member, told)
    token, wall_ms = random.getrandbits(62), int(clock.wall() * 1000)
    promotion = Promotion(
        identity, local.local.member, settings.proxies, settings.patience_seconds, token, wall_ms
    )  # fmt: skip
    ask(promotion.look(), promotion)
    _check(promotion, settings)
    agree(promotion.in_sync)
    ask(promotion.prepare(), promotion)
    _check(promotion, settings)
    following = Following(settings.id, identity.store, member, disk.end, disk.staged, random, clock.monotonic(), 1.0)
    disk.take(following)
    entry = EntryId(promotion.ballot, 0)
    with disk.lock, disk.store.guarded():
        keep_entry(disk.store, entry)
    disk.stream.reset(entry)
    with disk.lock:
        restored = end_logs(disk.store, int(clock.wall() * MICROSECONDS))
    local.keep(member=member, registered=True, lost=False)
    ask(promotion.accept(), promotion)
    if not promotion.done:
        raise Unavailable(
            "promote", settings.id, settings.patience_seconds, "too few proxies accepted it: repeat the command"
        )
    return Promoted(member, promotion.ballot, restored)


def address_of(settings: ServerSettings, port: int) -> str:
    """Return the address of a member started with these settings; `port` is the port if the system chose it."""
    if settings.advertise:
        return settings.advertise
    return f"{settings.bind[:-1]}{port or 1}" if settings.bind[-2:] in {":0", ":*"} else settings.bind


def _check(promotion: Promotion, settings: ServerSettings) -> None:
    if problem := promotion.problem():
        raise NotNow(f"server {settings.id} was not promoted: {problem}")


@contextlib.contextmanager
def _asking(settings: ServerSettings) -> Iterator[Callable[[dict[str, Message], Promotion], None]]:
    """Open sockets to the proxies, and yield a function that sends messages and processes the votes.

    The function returns when all proxies have voted or the patience is over.
    """
    clock, context, poller, wakeup = SystemClock(), zmq.Context[Any](), zmq.Poller(), Wakeup()
    keys = keys_of(settings, clock.wall())
    access = None if keys is None else ServerAccess(settings, keys, context, clock, alone=True)
    links = Links(context, poller, wakeup, access)
    try:
        dealers = {proxy: links.dealer(proxy) for proxy in settings.proxies}

        def ask(messages: dict[str, Message], promotion: Promotion) -> None:
            waiting, until, again = set(messages), clock.monotonic() + settings.patience_seconds, 0.0
            while waiting and (now := clock.monotonic()) < until:
                if now >= again:
                    again = now + ASK_SECONDS
                    for proxy in sorted(waiting):
                        links.send(dealers[proxy], [b"", *framed(messages[proxy])])
                ready = dict(poller.poll(50))
                links.turn(ready, now)
                for proxy in sorted(waiting):
                    while (frames := links.receive(dealers[proxy])) is not None:
                        vote = decoded(frames[1:])
                        if isinstance(vote, Vote) and promotion.receive(proxy, vote):
                            waiting.discard(proxy)

        yield ask
    finally:
        links.goodbye()
        if access is not None:
            access.close()
        wakeup.close()
        context.term()
