"""A server as a proxy knows it: its last announcement, and the bytes in flight to it."""

from __future__ import annotations

from pubsub.base.liveness import Liveness
from pubsub.proxy.in_flight import InFlight
from pubsub.proxy.remembered import StoreRow


class Server:
    """A store, and the last server with it.

    Attributes:
        id, store, incarnation, change, address: of the last announcement.
        proxies: the proxies that it names; None if it has announced nothing since this proxy started.
        topics: topic to log.
        given: by topic that other servers say they gave to it: its change number after the merge. Announcements up to
            that number do not cover the topic.
        abandoned: by topic that it announced with an abandoned log: that log. It does not count as a holder.
        assigned: number of topics assigned to it that it has not announced.
        link: the routing ID of its connection; None if it has not connected since this proxy started, or left.
        liveness: signs of life, both ways.
        member: of a store with a register, the ID of the member that announced itself last as its primary.
        complete: whether `topics` is complete as far as the server can tell; False after a gap in its announcements.
        overflow: whether it holds topics beyond topics_max, which are not in the table.
        draining: whether it takes no new topics.
        digest: of the body of the last full announcement, while nothing has changed since.
        mark: the incarnation reported to other servers. It is above its own if it was removed at that incarnation and
            came back without a restart.
        defaults: the digest of its defaults of topics' settings; "" for none.
        newcomer: the link of a server that waits for this one to be silent.
        was_alive: the result of the last liveness check.
        handing: the monotonic time at which its other member announced a planned takeover; None if there is none.
        gone: the monotonic time since which it is silent; None while it is alive, or if that is unknown.
        announced: whether its full announcement was ever accepted.
        back: whether it has sent a full announcement since this proxy started and since a log of it was given up.
        patterns: the digest of the patterns that it knows, as it told; "" for an earlier release.
        deletions: the digest of the deleted names that it knows, as it told; "" for an earlier release.
        lacks: the deleted names that it has not confirmed, with the monotonic time since when; no request about them
            goes to it.
        said_all: the time of its last full announcement since this proxy started, by its own clock; 0 if there was
            none.
    """

    __slots__ = (
        "abandoned",
        "address",
        "alone",
        "announced",
        "announced_all",
        "assigned",
        "back",
        "change",
        "complete",
        "defaults",
        "deletions",
        "digest",
        "draining",
        "given",
        "gone",
        "handing",
        "id",
        "in_flight",
        "incarnation",
        "lacks",
        "link",
        "liveness",
        "mark",
        "member",
        "newcomer",
        "overflow",
        "patterns",
        "proxies",
        "store",
        "topics",
        "was_alive",
    )

    def __init__(self, row: StoreRow, liveness: Liveness) -> None:
        self.id, self.store, self.incarnation, self.change = row.server, row.store, row.incarnation, row.change
        self.address, self.overflow, self.announced = row.address, row.overflow, row.announced
        self.defaults = row.defaults
        self.announced_all, self.back, self.mark = 0, False, 0
        self.proxies: tuple[str, ...] | None = None
        self.topics: dict[str, str] = {}
        self.given: dict[str, int] = {}
        self.abandoned: dict[str, str] = {}
        self.assigned = 0
        self.link: bytes | None = None
        self.member = self.patterns = self.deletions = ""
        self.lacks: dict[str, float] = {}
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
        """Return whether it is connected and has sent a message within its liveness."""
        return self.link is not None and self.liveness.alive(now)

    def hands_over(self, now: float) -> bool:
        """Return whether its other member is taking over as planned, so that its silence is expected."""
        return self.handing is not None and now - self.handing < self.liveness.patience

    def row(self) -> StoreRow:
        """Return its row for the routes file."""
        return StoreRow(
            self.store,
            self.id,
            self.incarnation,
            self.change,
            self.address,
            self.overflow,
            self.announced,
            self.defaults,
        )
