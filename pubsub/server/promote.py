"""The command `pubsub server promote`, an operator's last resort; a failover does without it (`standby.member`).

It puts `standby.election.promotion` on sockets, and makes the store of a stopped member go on alone.

The order keeps every crash harmless. First the proxies promise, then the store gets an entry that no other member has,
so that whoever has more or something else is copied over, then its logs end as those of a restored backup do, then the
directory is a new member's, and only then the register names it. Repeated, all of it is done again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import SystemRandom
from typing import Any, Final

import zmq

from pubsub.base.clock import SystemClock, sound_wall
from pubsub.base.resources import allow_connections
from pubsub.config.settings import ServerSettings
from pubsub.errors import ConfigurationError, NotNow, Unavailable
from pubsub.messenger.wakeup import Wakeup
from pubsub.protocol.names import keyed_endpoint, keyless_endpoint
from pubsub.protocol.register import Vote
from pubsub.protocol.standby import EntryId
from pubsub.server.doors import Doors, keys_of
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
"""What was not answered is sent again after so long."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """What was done.

    Attributes:
        member: the ID of the only member now.
        term: the ballot under which it was named.
        restored: what became of the topics.
    """

    member: str
    term: int
    restored: Restored


def promote(settings: ServerSettings, agree: Callable[[tuple[str, ...]], None]) -> Promoted:
    """Make a stopped member the only one of its store.

    Args:
        settings: the member's.
        agree: called with the members that are in sync as far as is known, before anything is changed; it raises where
            the operator does not agree.

    Raises:
        NotNow: something stands against it.
        Unavailable: not enough proxies answered; the same may be tried again.
        ConfigurationError, StorageError: the directory is not that of a member, or cannot be used; the clock is wrong.
    """
    allow_connections()
    sound_wall(SystemClock().wall())  # A ballot of such a clock would stay with the proxies.
    local = LocalFile(settings.directory)
    if local.local is None:
        raise ConfigurationError(f"{settings.directory} is not the directory of a member of a server with a standby")
    disk = open_disk(settings, local)
    assert disk is not None
    with contextlib.closing(disk):
        if disk.store is None:
            raise ConfigurationError(f"{settings.directory} holds no copy yet: there is nothing to go on with")
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
        restored = end_logs(disk.store)
    local.keep(member=member, registered=True, lost=False)
    ask(promotion.accept(), promotion)
    if not promotion.done:
        raise Unavailable("promote", settings.id, settings.patience_seconds, "too few proxies took it: repeat this")
    return Promoted(member, promotion.ballot, restored)


def address_of(settings: ServerSettings, port: int) -> str:
    """Where a member that is started with these settings is reached; `port`: what it had, where chance chose it."""
    if settings.advertise:
        return settings.advertise
    return f"{settings.bind[:-1]}{port or 1}" if settings.bind[-2:] in {":0", ":*"} else settings.bind


def _check(promotion: Promotion, settings: ServerSettings) -> None:
    if problem := promotion.problem():
        raise NotNow(f"server {settings.id} is not promoted: {problem}")


@contextlib.contextmanager
def _asking(settings: ServerSettings) -> Iterator[Callable[[dict[str, Message], Promotion], None]]:
    """Sockets to the proxies; what is given sends messages and hands over the votes, until all came or it is late."""
    clock, context, poller, wakeup = SystemClock(), zmq.Context[Any](), zmq.Poller(), Wakeup()
    keys = keys_of(settings, clock.wall())
    doors = None if keys is None else Doors(settings, keys, context, clock, alone=True)
    links = Links(context, poller, wakeup, doors)
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
        if doors is not None:
            doors.close()
        wakeup.close()
        context.term()
