"""All breakages by title."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.simulation.breakages import (
    calls,
    client,
    compaction,
    continuing,
    damage,
    databases,
    delays,
    deletions,
    expiry,
    family,
    forms,
    group_members,
    group_servers,
    limits,
    messenger,
    mixed,
    moves,
    open_batches,
    ownership,
    pairs,
    proxies,
    purges,
    replay,
    retaining,
    retries,
    server,
    settings,
    trains,
)
from tests.simulation.breakages.room import Breakage

ROOMS = (
    server,
    client,
    moves,
    ownership,
    proxies,
    retaining,
    messenger,
    pairs,
    calls,
    trains,
    open_batches,
    continuing,
    damage,
    expiry,
    forms,
    settings,
    compaction,
    delays,
    replay,
    retries,
    purges,
    family,
    deletions,
    limits,
    mixed,
    group_members,
    group_servers,
    databases,
)

BREAKAGES: dict[str, Breakage] = {title: made for room in ROOMS for title, made in room.breakage.breakages.items()}


@contextlib.contextmanager
def broken(title: str) -> Iterator[None]:
    """With one rule left out."""
    with contextlib.ExitStack() as stack:
        BREAKAGES[title](stack)
        yield
