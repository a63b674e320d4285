"""A server as a proxy knows it: what it announced last, and what is on its way to it."""

from __future__ import annotations

from pubsub.base.liveness import Liveness
from pubsub.proxy.in_flight import InFlight
from pubsub.proxy.remembered import StoreRow


class Server:
    """A store, and the server that brought it last.

    Attributes:
        id, store, incarnation, change, address: as announced last.
        proxies: the proxies it names; None while it was not heard since this proxy started.
        topics: topic to log.
        given: topics that others say they gave it, and its change number after the merge: what it announced before
            says nothing of these.
        abandoned: topics that it announced with a log that was given up, and that log: it is not their holder.
        assigned: topics given to it that it has not announced.
        link: the routing ID under which it is reached; None: not connected since this proxy started, or it left.
        liveness: signs of life, both ways.
        member: of a store that has a register, the ID of the member that is its primary, as it announced last.
        complete: whether `topics` is all it holds, as far as it can tell; False after a gap in its announcements.
        overflow: whether it holds topics beyond topics_max, which are not in the table.
        draining: whether it is to be given no new topic.
        digest: of the body of the last full announcement, while nothing has changed since.
        in_flight: what is on its way to it.
        mark: the incarnation as which others are told of it: a higher one than its own where it was forgotten as that,
            and came back without a start.
        newcomer: the link of a server that waits for this one to be silent.
        was_alive: whether it was alive when that was looked at last.
        handing: when its other member said that it takes over as planned, by the monotonic clock; None: it does not.
        gone: since when it is not heard, by the monotonic clock; None while it is, or where that is not known.
        heard: whether it has ever said all it holds.
        back: whether it has said all it holds since this proxy started, and since anything of it was given up.
        said_all: when its last full announcement since this proxy started was made, by its clock; 0: there was none.
    """

    __slots__ = (
        "abandoned",
        "address",
        "alone",
        "assigned",
        "back",
        "change",
        "complete",
        "digest",
        "draining",
        "given",
        "gone",
        "handing",
        "heard",
        "id",
        "in_flight",
        "incarnation",
        "link",
        "liveness",
        "mark",
        "member",
        "newcomer",
        "overflow",
        "proxies",
        "said_all",
        "store",
        "topics",
        "was_alive",
    )

    def __init__(self, row: StoreRow, liveness: Liveness) -> None:
        self.id, self.store, self.incarnation, self.change = row.server, row.store, row.incarnation, row.change
        self.address, self.overflow, self.heard = row.address, row.overflow, row.heard
        self.said_all, self.back, self.mark = 0, False, 0
        self.proxies: tuple[str, ...] | None = None
        self.topics: dict[str, str] = {}
        self.given: dict[str, int] = {}
        self.abandoned: dict[str, str] = {}
        self.assigned = 0
        self.link: bytes | None = None
        self.member = ""
        self.liveness = liveness
        self.in_flight = InFlight()
        self.complete = True
        self.draining = False
        self.digest = b""
        self.newcomer: bytes | None = None
        self.was_alive = False
        self.gone: float | None = None
        self.handing: float | None = None
        self.alone = (self,)

    def alive(self, now: float) -> bool:
        """Whether it is connected and was heard within its patience."""
        return self.link is not None and self.liveness.alive(now)

    def hands_over(self, now: float) -> bool:
        """Whether its other member is taking over as planned: that it is not heard is no news for its patience."""
        return self.handing is not None and now - self.handing < self.liveness.patience

    def row(self) -> StoreRow:
        """What the routes file keeps of it."""
        return StoreRow(self.store, self.id, self.incarnation, self.change, self.address, self.overflow, self.heard)
