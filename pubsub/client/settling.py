"""Look up silent members of groups in the client's own database (docs/explanation/group-databases.md)."""

from __future__ import annotations

import logging
from typing import Final

from pubsub.client.core.group_core import GroupCore
from pubsub.client.core.group_looks import settling
from pubsub.client.storage.interface import ClientStore
from pubsub.errors import PubsubError

_log: Final = logging.getLogger("pubsub.client")


def look_up(core: GroupCore, store: ClientStore, name: str) -> None:
    """Look up the members that answers have named. The session's lock is held.

    After a failure nothing is told, and the service asks again.
    """
    silent, core.silent = core.silent, []
    for one in silent:
        member = one.member
        try:
            found = store.settle_other(one.client, one.store, member.topic, member.name, one.number)
        except PubsubError as error:
            _log.warning("client %s: %s", name, error)
            continue
        if found is None:
            _log.warning("client %s: member %s of group %s is not in the database", name, one.client, member.name)
        elif (work := settling(one, found)) is not None:
            core.settling.append((member, work))  # Its answer tells nothing: the service asks again.
