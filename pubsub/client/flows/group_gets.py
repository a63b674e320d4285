"""Take records of a group without a handler: each is done, in a commit, before the call returns it.

The rule is docs/explanation/groups.md, GR1.
"""

from __future__ import annotations

from pubsub.base.clock import MICROSECONDS
from pubsub.client.arguments import check_count
from pubsub.client.core.expired import separated
from pubsub.client.core.group_member import GroupMember
from pubsub.client.core.group_places import Places
from pubsub.client.core.group_work import GroupCall
from pubsub.client.core.message import Batch, RunSlice
from pubsub.client.flows.flow import Flow
from pubsub.client.flows.group_waits import GroupWaits
from pubsub.errors import Unavailable
from pubsub.protocol.group_bodies import Range


class GroupGets:
    """The calls that take records of groups, on one session.

    Args:
        waits: the calls about groups.
    """

    def __init__(self, waits: GroupWaits) -> None:
        self.waits, self.session = waits, waits.session

    def get_many(self, topic: str, group: str, most: int, timeout: float | None) -> Flow[Batch]:
        """Take up to `most` records that are here, and wait for the first one only."""
        check_count("max", most)
        session = self.session
        until = session.until(timeout, started := session.now)
        with session.entered():
            member = self.waits.joined(topic, group)
        call = GroupCall(1, until, most, gets=True)
        try:
            while True:
                found = yield from self.waits.available(member, call, started, until)
                with session.entered():
                    batch = self._take(member, most) if found else Batch(topic)
                if batch or not found:
                    return batch
                member.end_call(call, session.now)
        finally:
            self.waits.end_call(member, call)

    def get_on(self, topic: str, group: str, timeout: float | None) -> Flow[Batch]:
        """Take one record; without a time-out, wait until one comes."""
        while True:
            try:
                found = yield from self.get_many(topic, group, 1, timeout)
            except Unavailable:
                if timeout is not None:
                    raise
                continue
            if found or timeout is not None:
                return found

    def _take(self, member: GroupMember, most: int) -> Batch:
        """Commit claimed records as done, and return those that are not expired. The lock is held."""
        session = self.session
        plan = member.plan(most)
        if not plan:
            return Batch(member.topic)
        pieces = [
            entry.piece._replace(stop=entry.piece.start + number, attempts=entry.attempts + 1) for entry, number in plan
        ]
        done = Places(Range(entry.lane[0], entry.low, entry.end(number), entry.part) for entry, number in plan)
        fsynced = session.commit(member.done_changes(done))
        member.taken(plan, session.now)
        self.waits.core.group_moved(session.now, fsynced=fsynced)
        live, expired = separated(pieces, int(session.clock.wall() * MICROSECONDS))
        session.counters["expired"] += sum(piece.stop - piece.start for piece in expired)
        if session.recorder is not None:
            session.recorder.delivered(member.topic, live, handler=False)
            session.recorder.flush()
        session.follow(only_send=True)
        return Batch(member.topic, _joined(live), parts=member.values.parts)


def _joined(pieces: list[RunSlice]) -> list[RunSlice]:
    """Join neighbouring slices of one run."""
    out: list[RunSlice] = []
    for piece in pieces:
        last = out[-1] if out else None
        follows = last is not None and last.run is piece.run and last.stop == piece.start
        if last is not None and follows and (last.doubtful, last.attempts) == (piece.doubtful, piece.attempts):
            out[-1] = last._replace(stop=piece.stop)
        else:
            out.append(piece)
    return out
