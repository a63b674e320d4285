"""Messages from the members of stores that have a register (docs/explanation/register.md, *The proxies*).

PREPARE, ACCEPT, LOOK and ADMIT may come from any member. Its link need not have announced itself, because a standby
never does. Each is answered by a VOTE, which is sent after its facts are on the disk, like every answer. While nothing
can be written there is no answer. A VOTE is never answered.

A primary sends many messages, so its signs of life are not recorded with each one. They are looked up when a member
asks.

The rules are those of docs/explanation/register.md, R13 and R16.
"""

from __future__ import annotations

from math import isfinite

from pubsub.messenger.framing import Prefix
from pubsub.protocol import Outcome, Periodic
from pubsub.protocol.register import Accept, Admit, Look, Prepare
from pubsub.proxy.admission import Judgement, Verdict
from pubsub.proxy.register import Registers
from pubsub.proxy.replies import Replies
from pubsub.proxy.routing_table import RoutingTable

Asked = Prepare | Accept | Look | Admit


class Members:
    """The members of the stores that a proxy knows.

    Attributes:
        registers: this proxy's copy of the registers.
        keyed: whether keys prove a sender's ID. Then only the server that brought a store's row may ask about it, even
            if another server has announced the store since.
    """

    def __init__(self, table: RoutingTable, registers: Registers, replies: Replies) -> None:
        self._table, self.registers, self._replies = table, registers, replies
        self._counters = replies.counters
        self.keyed = False

    def asked(self, link: bytes, prefix: Prefix, message: Asked, now: float) -> None:
        """Answer a member, unless nothing can be remembered at present. A missing answer promises nothing.

        Args:
            link: the link on which the message arrived.
            message: the decoded message.
            now: the monotonic clock, in seconds.
        """
        if self._replies.suspended:
            self._counters["votes_withheld"] += 1
            return
        if not self._is_of(message):
            self._counters["registers_asked_by_others"] += 1
            self._replies.tell(link, prefix, Outcome.REFUSED, "the_store_is_of_another_server")
            return
        server = self._table.servers.get(message.store)
        if server is not None and isinstance(message, Prepare) and message.kind == "handover":
            server.handing = now
        self._look_up(message.store, link, now)
        vote = self.registers.handle(message, now)
        self._counters[f"votes_{vote.outcome.name.lower()}"] += 1
        self._replies.vote(link, prefix, vote)

    def announced(self, message: Periodic, now: float) -> Judgement | None:
        """Return the reason to reject an announcement because of the store's register, or None."""
        row = self.registers.rows.get(message.store)
        if self.keyed and row is not None and row.server != message.sender:
            return Judgement(Verdict.REFUSED, f"the_register_of_this_store_is_of_server_{row.server}")
        if message.member and not self.registers.received(message.store, message.member, message.incarnation, now):
            return Judgement(Verdict.DEPOSED, "a_primary_of_a_higher_term_is_known")
        return None

    def _is_of(self, message: Asked) -> bool:
        """Return whether the store belongs to the server that asks about it, as far as keys can tell."""
        if not self.keyed:
            return True
        row = self.registers.rows.get(message.store)
        if row is not None:
            return row.server == message.sender
        # The answer that there is no row does no harm. A new row is accepted only from the server that announced the
        # store.
        known = self._table.servers.get(message.store)
        return not isinstance(message, Admit) or (known is not None and known.announced and known.id == message.sender)

    def _look_up(self, store: str, link: bytes, now: float) -> None:
        """Record the primary's last sign of life; if another member asks, send the primary a heartbeat.

        If the primary's link is closed, that heartbeat fails and shows it.
        """
        server = self._table.servers.get(store)
        if server is None or not server.member:
            return
        silence = server.liveness.silence(now)
        if server.link is None or not isfinite(silence):
            self.registers.disconnected(store, server.member)
            return
        self.registers.received(store, server.member, server.incarnation, now - silence)
        if server.link != link:
            self._replies.beat(server, now, answered=True)
