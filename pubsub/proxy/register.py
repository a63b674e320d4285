"""The registers of stores with a standby, as one of their acceptors (docs/architecture.md, *The register*).

A store with two members has a *register*: who is primary, and who must acknowledge. Each proxy has a copy of it, a view
is chosen when a majority of the configured proxies has accepted it, and members propose (CASPaxos). A proxy decides
nothing; it keeps four rules, and by them two members can never both have their way:

    a promise       a ballot that is not above the highest promised one is not promised, one below it not accepted
    on disk         what is promised or accepted is in `RouteChanges` when `handle` returns; the shell writes that
                    before it sends the vote, as it does with whatever the routing table notes
    amnesia         without a row for the store there is no vote: what was promised may have been lost with it. ADMIT
                    brings a row, and counts only for the very routes file that it was made for
    stickiness      where the primary is heard nobody is helped to take its place; a member that asks has it answer

The first member that a register is made for brings its rows by ADMIT too, to all proxies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from pubsub.protocol.register import Accept, Admit, Look, Prepare, Vote, VoteOutcome
from pubsub.protocol.stores import STORES_MAX
from pubsub.proxy.remembered import RegisterRow, RouteChanges

REGISTERS_MAX: Final = STORES_MAX
"""Registers of one proxy: as many as the stores that it knows."""


class _Heard(NamedTuple):
    """The primary that was heard last.

    Attributes:
        at: monotonic seconds; None: its connection has ended since.
    """

    term: int
    member: str
    at: float | None


class Registers:
    """All registers of one proxy.

    Args:
        proxy: its ID.
        identity: of its routes file.
        rows: what that file holds.
        changes: where what it does not hold yet is noted; no vote may leave before it is written.
        patience: seconds for which a primary counts as heard.
    """

    def __init__(
        self, proxy: str, identity: str, rows: Iterable[RegisterRow], changes: RouteChanges, patience: float
    ) -> None:
        self._proxy, self._identity, self._changes, self._patience = proxy, identity, changes, patience
        self.rows = {row.store: row for row in rows}
        self._heard: dict[str, _Heard] = {}

    def handle(self, message: Prepare | Accept | Look | Admit, now: float) -> Vote:
        """What this proxy says to a member.

        Args:
            message: as decoded.
            now: the monotonic clock, in seconds.

        Returns:
            The vote, which is to leave when `changes` is on the disk.
        """
        match message:
            case Prepare():
                outcome = self._prepare(message, now)
            case Accept():
                outcome = self._accept(message)
            case Look():
                outcome = VoteOutcome.TOLD if message.store in self.rows else VoteOutcome.NEW
            case Admit():
                outcome = self._admit(message)
        vote = Vote(self._proxy, message.store, outcome, message.token, self._identity)
        row, heard = self.rows.get(message.store), self._heard.get(message.store)
        if row is not None:
            vote.promised, vote.ballot, vote.view = row.promised, row.ballot, row.view
        if heard is not None and heard.at is not None:
            vote.silence_ms = int(max(0.0, now - heard.at) * 1000)
        return vote

    def heard(self, store: str, member: str, term: int, now: float) -> bool:
        """A member that calls itself primary was heard; returns False where one of a higher term was: it is deposed."""
        known = self._heard.get(store)
        if store not in self.rows:
            return True
        if known is not None and known.term > term:
            return False
        self._heard[store] = _Heard(term, member, now)
        return True

    def term(self, store: str) -> int:
        """Under which the primary serves that was heard last; 0: none was, since this proxy started."""
        known = self._heard.get(store)
        return known.term if known is not None else 0

    def unheard(self, store: str, member: str) -> None:
        """The connection of a member has ended: nobody need wait until it counts as silent."""
        known = self._heard.get(store)
        if known is not None and known.member == member:
            self._heard[store] = known._replace(at=None)

    def _prepare(self, asked: Prepare, now: float) -> VoteOutcome:
        row = self.rows.get(asked.store)
        if row is None:
            return VoteOutcome.NEW
        if asked.kind == "take" and self._hears_another(asked, now):
            return VoteOutcome.HEARD
        if asked.ballot <= row.promised:
            return VoteOutcome.REFUSED
        self._keep(replace(row, promised=asked.ballot))
        return VoteOutcome.PROMISED

    def _accept(self, asked: Accept) -> VoteOutcome:
        row = self.rows.get(asked.store)
        if row is None:
            return VoteOutcome.NEW
        if asked.ballot < row.promised:
            return VoteOutcome.REFUSED
        self._keep(replace(row, promised=asked.ballot, ballot=asked.ballot, view=asked.view))
        return VoteOutcome.ACCEPTED

    def _admit(self, asked: Admit) -> VoteOutcome:
        if asked.store in self.rows:
            return VoteOutcome.TOLD
        if asked.identity != self._identity:
            return VoteOutcome.NEW
        if len(self.rows) >= REGISTERS_MAX:
            return VoteOutcome.FULL
        promised = max(asked.promised, asked.ballot)
        self._keep(RegisterRow(asked.store, promised, asked.ballot, asked.view, asked.sender))
        return VoteOutcome.TOLD

    def _hears_another(self, asked: Prepare, now: float) -> bool:
        heard = self._heard.get(asked.store)
        if heard is None or heard.at is None or heard.member == asked.member:
            return False
        sticky = asked.sticky_ms / 1000 or self._patience
        return now - heard.at < min(self._patience, sticky)

    def _keep(self, row: RegisterRow) -> None:
        self.rows[row.store] = self._changes.registers[row.store] = row
