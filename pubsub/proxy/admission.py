"""Which announcements are believed (docs/architecture.md, *Ownership*).

Announcements are ordered by (store, incarnation of the server, change number): the highest counts and lower ones are
dropped. One rule stands before that: two processes must never be taken for one. A newcomer under an ID or a store
whose server is still heard on another link waits (`taken`) until that one is silent, be it a second server with the
same name, a copied data directory, or the server itself started again before its old link was found dead. And one comes
after: a store that was started again (a higher incarnation) but knows less than it did (a lower change) was restored
from an older copy, and so was one that goes on below an incarnation heard before: it is `stale`, and must not serve.

    the same link, another store or ID                          refused   a process has one store for life
    another link heard under this ID or store                   taken     unless it is the same process, reconnected
    the same incarnation, a lower change                        late      delivered late: dropped
    a lower incarnation, the same link                          late
    a lower incarnation, another link                           stale     a copy that missed what came after
    a higher incarnation, a lower change                        stale
    a part, from a link that never said all                     ask
    else                                                        accept

Of a store that has a register (the announcement names a member) a register has decided who serves, and each start of a
primary is a higher incarnation: its term. So nobody waits there for the one before to be silent, and nothing is
suspected to be a copy for being lower: it is `deposed`, and has to follow. Only who was started under a higher term and
yet knows less than the one before is still `stale`, as no member is that was in sync.

    another link heard under this store and ID                  by its term alone
    a lower term, another link                                  deposed
    the same term, another member                               deposed
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pubsub.protocol import Periodic
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server


class Verdict(Enum):
    """What becomes of an announcement."""

    ACCEPT = "accept"
    ASK = "ask"
    TAKEN = "taken"
    STALE = "stale"
    DEPOSED = "deposed"
    LATE = "late"
    REFUSED = "refused"


class Judgement(NamedTuple):
    """A verdict, why, and the servers that stand in the way."""

    verdict: Verdict
    reason: str = ""
    rivals: tuple[Server, ...] = ()


def judge(table: RoutingTable, link: bytes, said: Periodic, now: float) -> Judgement:
    """What becomes of the announcement `said` that came from `link`."""
    here = table.links.get(link)
    if here is not None and (here.store != said.store or here.id != said.sender):
        return Judgement(Verdict.REFUSED, f"this_link_is_server_{here.id}_with_store_{here.store}")
    known = table.servers.get(said.store)
    same_process = known is not None and (known.id, known.incarnation) == (said.sender, said.incarnation)
    rivals = tuple(
        server
        for server in table.alive(now)
        if server.link != link
        and (server.id == said.sender or server.store == said.store)
        and not (server is known and (same_process or (said.member and server.id == said.sender)))
    )
    if rivals:
        which = "ID" if rivals[0].id == said.sender else "store"
        return Judgement(Verdict.TAKEN, f"server_{rivals[0].id}_with_this_{which}_is_still_heard", rivals)
    # Of one that was only heard of, the incarnation is that as which others were told of it, not one that it had.
    if known is not None and known.heard:
        if said.incarnation < known.incarnation:
            if known is here:
                return Judgement(Verdict.LATE)
            if said.member:
                return Judgement(Verdict.DEPOSED, f"a_primary_of_term_{known.incarnation}_was_heard")
            return Judgement(Verdict.STALE, f"store_was_started_again_since_as_incarnation_{known.incarnation}")
        if same_process and said.member and known.member not in {"", said.member}:
            return Judgement(Verdict.DEPOSED, f"member_{known.member}_was_heard_under_this_term")
        if said.change < known.change:
            if same_process:
                return Judgement(Verdict.LATE)
            return Judgement(Verdict.STALE, f"store_is_at_change_{said.change}_but_was_at_{known.change}_before")
    if said.partial and (here is None or here.proxies is None or said.incarnation != here.incarnation):
        return Judgement(Verdict.ASK)
    return Judgement(Verdict.ACCEPT)


def follows(server: Server, said: Periodic) -> bool:
    """Whether a partial announcement comes right after the last one that was accepted from this server."""
    if said.previous:
        return said.previous == server.change
    return said.change - server.change in {0, 1}
