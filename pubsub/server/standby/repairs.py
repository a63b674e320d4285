"""A member's part in repairs, on its store: what the core is told of them, and what is read for the other member.

primary   a request that met damage has `Repairs` ask; what comes is noted like any change, and commits with its loop
standby   `Answers` reads what is wanted, once it has applied all that the primary had when it asked
"""

from __future__ import annotations

import logging
from typing import Final
from zlib import crc32

from pubsub.errors import StoreDamaged
from pubsub.protocol.standby import Repair
from pubsub.server.standby.disk.member_disk import MemberDisk
from pubsub.server.standby.election.proposer import Identity
from pubsub.server.standby.member import Member
from pubsub.server.standby.replication.repair_protocol import Answers, Repairs
from pubsub.server.state.state import State
from pubsub.server.topic.changes import BatchQuarantined
from pubsub.server.topic.delivery import Batch

_log: Final = logging.getLogger(__name__)


class Mending:
    """Both sides of one member.

    Args:
        identity: whose messages these are.
        disk: whose store it is.
        beat: seconds between two heartbeats of the members' link.
    """

    def __init__(self, identity: Identity, disk: MemberDisk, beat: float) -> None:
        self._me, self._disk = identity, disk
        self.repairs, self._answers = Repairs(identity, beat), Answers(identity, self._read)
        self._state: State | None = None

    def serve(self, state: State) -> None:
        """This member is the primary, and this is what it has in memory."""
        self._state = state
        state.mends = self.repairs.mends

    def hear(self, message: Repair, member: Member) -> None:
        """What the other member says.

        Args:
            member: this one.
        """
        me = self._me
        if (message.sender, message.store) != (me.server, me.store) or message.member == me.member:
            return
        if member.leading is None:
            self._answers.asked(message)
        elif self._state is not None:
            self._settle(self._state, message, member.leading.term)

    def _settle(self, state: State, message: Repair, term: int) -> None:
        settled = self.repairs.heard(message, term, len(state.publishers.names))
        if settled is None:
            return
        where = f"{self._disk.directory}: batch {message.offset} of log {message.log}"
        topic = state.topic_of(BatchQuarantined(message.log, message.offset))
        if settled.change is None:
            _log.error("%s is damaged, and not whole at the other member either: it is lost", where)
        else:
            _log.warning("%s was damaged, and is repaired from the other member", where)
            state.uncommitted.rows.append(settled.change)
            state.counters["batches_repaired"] += 1
        if topic is not None:
            state.long_polls.appended(topic.name)

    def outgoing(self, member: Member, now: float) -> list[Repair]:
        """What is to be sent to the other member now.

        Raises:
            StorageError: the disk failed.
        """
        leading, following = member.leading, member.following
        if leading is not None:
            view = member.proposer.view or member.view
            others = [] if view is None else [one for one in view.members if one != self._me.member]
            self.repairs.ask_of(others[0] if others else "")
            return self.repairs.outgoing(leading.term, leading.end, now)
        return [] if following is None else self._answers.outgoing(following.applied, following.floor)

    def _read(self, log: int, offset: int) -> Batch | None:
        store = self._disk.store
        if store is None:
            return None
        try:
            batch = next(iter(store.reader.batches(log, offset, offset + 1)), None)
        except StoreDamaged as error:
            _log.error("the primary asks for batch %d of log %d, and here: %s", offset, log, error)
            return None
        if batch is None or batch.offset != offset or batch.body is None or crc32(batch.body) != batch.checksum:
            return None
        return batch
