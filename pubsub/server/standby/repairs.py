"""A member's part in repairs: its store, its state in memory, and the batches it reads for the other member.

primary   A request that meets a damaged batch makes `Repairs` ask. The repair is a change that commits with its
          loop.
standby   `Answers` reads the batch after it has applied all entries that the primary had at the time of the
          request.
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


class BatchRepairs:
    """Both sides of one member.

    Args:
        identity: of this member, for its messages.
        disk: of this member.
        beat: seconds between two heartbeats of the members' link.
    """

    def __init__(self, identity: Identity, disk: MemberDisk, beat: float) -> None:
        self._me, self._disk = identity, disk
        self.repairs, self._answers = Repairs(identity, beat), Answers(identity, self._read)
        self._state: State | None = None

    def serve(self, state: State) -> None:
        """Begin as the primary, with its state in memory."""
        self._state = state
        state.ask_repair = self.repairs.ask_repair

    def receive(self, message: Repair, member: Member) -> None:
        """Process a message of the other member.

        Args:
            message: as decoded.
            member: this member.
        """
        me = self._me
        if (message.sender, message.store) != (me.server, me.store) or message.member == me.member:
            return
        if member.leading is None:
            self._answers.asked(message)
        elif self._state is not None:
            self._settle(self._state, message, member.leading.term)

    def _settle(self, state: State, message: Repair, term: int) -> None:
        settled = self.repairs.receive(message, term, len(state.publishers.names))
        if settled is None:
            return
        where = f"{self._disk.directory}: batch {message.offset} of log {message.log}"
        topic = state.topic_of(BatchQuarantined(message.log, message.offset))
        if settled.change is None:
            _log.error("%s is damaged, and the other member has no intact copy: its records are lost", where)
        else:
            _log.warning("%s was damaged, and is now repaired from the other member", where)
            state.uncommitted.rows.append(settled.change)
            state.counters["batches_repaired"] += 1
        if topic is not None:
            state.long_polls.appended(topic.name)

    def outgoing(self, member: Member, now: float) -> list[Repair]:
        """Return the messages that are due to the other member.

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
            _log.error("cannot give the primary batch %d of log %d to repair its copy: %s", offset, log, error)
            return None
        if batch is None or batch.offset != offset or batch.body is None or crc32(batch.body) != batch.checksum:
            return None
        return batch
