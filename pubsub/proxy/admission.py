"""The rules by which a proxy accepts or rejects announcements (docs/explanation/ownership.md, *Announcements*).

Announcements are ordered by store, incarnation of the server, and change number. The highest counts; lower ones are
dropped. Two more rules apply.

Before the order: two processes must never count as one. A new link may use an ID or store whose server still sends on
another link. It waits (`taken`) until that server is silent. There are three causes: a second server with the same
name, a copied data directory, or a server that restarted before its old link was found dead.

After the order: a store with a higher incarnation and a lower change number was restored from an older copy. So was a
store that continues below a known incarnation. It is `stale` and must not serve.

    the same link, another store or ID                          refused   a process has one store for life
    another live link with this ID or store                     taken     unless it is the same process, reconnected
    the same incarnation, a lower change                        late      delivered late: dropped
    a lower incarnation, the same link                          late
    a lower incarnation, another link                           stale     a copy that lacks later changes
    a higher incarnation, a lower change                        stale
    a part, from a link without a full announcement             ask
    any other                                                   accept

If the announcement names a member, the store has a register, and the register has chosen the primary. Each start of a
primary is a higher incarnation: its term. So a new primary does not wait for the silence of the old one. A lower term
does not mean a copy: it is `deposed` and has to follow. Only a primary with a higher term and a lower change number
than its predecessor is `stale`. No member that was in sync is in that state.

    another live link with this store and ID                    decided by its term alone
    a lower term, another link                                  deposed
    the same term, another member                               deposed

The rules are those of docs/explanation/ownership.md, O4, O5 and O6; docs/explanation/register.md, R15.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pubsub.protocol import Periodic
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server


class Verdict(Enum):
    """The decision about an announcement."""

    ACCEPT = "accept"
    ASK = "ask"
    TAKEN = "taken"
    STALE = "stale"
    DEPOSED = "deposed"
    LATE = "late"
    REFUSED = "refused"


class Judgement(NamedTuple):
    """A verdict, its reason, and the live servers that prevent acceptance."""

    verdict: Verdict
    reason: str = ""
    rivals: tuple[Server, ...] = ()


def judge(table: RoutingTable, link: bytes, message: Periodic, now: float) -> Judgement:
    """Decide about the announcement `said` that arrived on `link`."""
    here = table.links.get(link)
    if here is not None and (here.store != message.store or here.id != message.sender):
        return Judgement(Verdict.REFUSED, f"this_link_is_server_{here.id}_with_store_{here.store}")
    known = table.servers.get(message.store)
    same_process = known is not None and (known.id, known.incarnation) == (message.sender, message.incarnation)
    rivals = tuple(
        server
        for server in table.alive(now)
        if server.link != link
        and (server.id == message.sender or server.store == message.store)
        and not (server is known and (same_process or (message.member and server.id == message.sender)))
    )
    if rivals:
        which = "ID" if rivals[0].id == message.sender else "store"
        return Judgement(Verdict.TAKEN, f"server_{rivals[0].id}_with_this_{which}_still_sends_heartbeats", rivals)
    # If this store never announced itself here, its incarnation is the one that other servers reported. It does not
    # count then.
    if known is not None and known.announced:
        if message.incarnation < known.incarnation:
            if known is here:
                return Judgement(Verdict.LATE)
            if message.member:
                return Judgement(Verdict.DEPOSED, f"a_primary_of_term_{known.incarnation}_is_known")
            return Judgement(Verdict.STALE, f"store_was_started_again_since_as_incarnation_{known.incarnation}")
        if same_process and message.member and known.member not in {"", message.member}:
            return Judgement(Verdict.DEPOSED, f"member_{known.member}_announced_itself_under_this_term")
        if message.change < known.change:
            if same_process:
                return Judgement(Verdict.LATE)
            return Judgement(Verdict.STALE, f"store_is_at_change_{message.change}_but_was_at_{known.change}_before")
    if message.partial and (here is None or here.proxies is None or message.incarnation != here.incarnation):
        return Judgement(Verdict.ASK)
    return Judgement(Verdict.ACCEPT)


def follows(server: Server, message: Periodic) -> bool:
    """Return whether a partial announcement directly follows the last accepted one of this server."""
    if message.previous:
        return message.previous == server.change
    return message.change - server.change in {0, 1}
