"""The conversation with the members of stores that have a register (docs/architecture.md, *The register*).

PREPARE, ACCEPT, LOOK and ADMIT come from any member, over a link that need not have announced anything: a standby never
does. Each is answered by VOTE, which leaves when what it says is on the disk, like every answer; and by nothing while
nothing can be written. A VOTE is never answered.

Whether the primary of a store is heard is not noted with each of its messages, of which there are many, but looked up
when somebody asks.
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

    Args:
        table: whose stores they are.
        registers: this proxy's copy of their registers.
        replies: where votes go.

    Attributes:
        registers: as given.
        keyed: whether a sender's ID was proven by a key: then only the server whose store it is asks about it. That is
            who brought the row, whoever has announced the store since.
    """

    def __init__(self, table: RoutingTable, registers: Registers, replies: Replies) -> None:
        self._table, self.registers, self._replies = table, registers, replies
        self._counters = replies.counters
        self.keyed = False

    def asked(self, link: bytes, prefix: Prefix, said: Asked, now: float) -> None:
        """Answer a member, unless nothing can be remembered at present: to be silent binds nobody.

        Args:
            link: where it came from.
            prefix: of the message.
            said: as decoded.
            now: the monotonic clock, in seconds.
        """
        if self._replies.suspended:
            self._counters["votes_withheld"] += 1
            return
        if not self._is_of(said):
            self._counters["registers_asked_by_others"] += 1
            self._replies.tell(link, prefix, Outcome.REFUSED, "the_store_is_of_another_server")
            return
        server = self._table.servers.get(said.store)
        if server is not None and isinstance(said, Prepare) and said.kind == "hand":
            server.handing = now
        self._look_up(said.store, link, now)
        vote = self.registers.handle(said, now)
        self._counters[f"votes_{vote.outcome.value}"] += 1
        self._replies.vote(link, prefix, vote)

    def announced(self, said: Periodic, now: float) -> Judgement | None:
        """A server that would be believed has announced itself; returns why it is not, for the sake of a register."""
        row = self.registers.rows.get(said.store)
        if self.keyed and row is not None and row.server != said.sender:
            return Judgement(Verdict.REFUSED, f"the_register_of_this_store_is_of_server_{row.server}")
        if said.member and not self.registers.heard(said.store, said.member, said.incarnation, now):
            return Judgement(Verdict.DEPOSED, "a_primary_of_a_higher_term_was_heard")
        return None

    def _is_of(self, said: Asked) -> bool:
        """Whether a store is that of the server which asks about it, as far as keys can tell."""
        if not self.keyed:
            return True
        row = self.registers.rows.get(said.store)
        if row is not None:
            return row.server == said.sender
        # To tell that there is nothing harms nobody; to take a row would, but from who was believed to have the store.
        known = self._table.servers.get(said.store)
        return not isinstance(said, Admit) or (known is not None and known.heard and known.id == said.sender)

    def _look_up(self, store: str, link: bytes, now: float) -> None:
        """See whether the primary is heard, and have it answer where another asks: a closed link shows by that."""
        server = self._table.servers.get(store)
        if server is None or not server.member:
            return
        silence = server.liveness.silence(now)
        if server.link is None or not isfinite(silence):
            self.registers.unheard(store, server.member)
            return
        self.registers.heard(store, server.member, server.incarnation, now - silence)
        if server.link != link:
            self._replies.beat(server, now, answered=True)
