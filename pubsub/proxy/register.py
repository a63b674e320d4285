"""The registers of stores with a standby, at one acceptor (docs/explanation/register.md).

A store with two members has a *register*. Its value, the view, names the primary and the members that must acknowledge.
Each proxy has a copy. Members propose a view, and it is chosen when a majority of the configured proxies has accepted
it (CASPaxos). A proxy decides nothing. It keeps four rules, so that two members never both succeed:

    a promise       a ballot must be above the highest promised one to be promised, and not below it to be accepted
    on disk         promises and acceptances are in `RouteChanges` when `handle` returns; the shell writes them before
                    it sends the vote, like every change of the routing table
    amnesia         without a row for the store there is no vote, because an earlier promise may be lost. ADMIT brings
                    a row, and counts only for the routes file whose identity it names
    stickiness      while the primary is alive here, no takeover gets a promise; a member that asks gets this answer

The first member brings the rows of a new register by ADMIT too, to all proxies.

The rules are those of docs/explanation/register.md, R3, R9 and R14.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from pubsub.protocol.register import Accept, Admit, Look, Prepare, Vote, VoteOutcome
from pubsub.protocol.stores import STORES_MAX
from pubsub.proxy.remembered import RegisterRow, RouteChanges

REGISTERS_MAX: Final = STORES_MAX
"""Limit of registers at one proxy, equal to that of stores."""


class _LastPrimary(NamedTuple):
    """The last primary that sent to this proxy.

    Attributes:
        at: monotonic seconds; None if its connection has ended since.
    """

    term: int
    member: str
    at: float | None


class Registers:
    """All registers of one proxy.

    Args:
        identity: the identity of its routes file.
        rows: the rows of that file.
        changes: receives new rows; no vote may be sent before they are written.
        patience: seconds for which a primary counts as alive.
    """

    def __init__(
        self, proxy: str, identity: str, rows: Iterable[RegisterRow], changes: RouteChanges, patience: float
    ) -> None:
        self._proxy, self._identity, self._changes, self._patience = proxy, identity, changes, patience
        self.rows = {row.store: row for row in rows}
        self._last: dict[str, _LastPrimary] = {}

    def handle(self, message: Prepare | Accept | Look | Admit, now: float) -> Vote:
        """Return the vote for a member's request.

        Args:
            message: the decoded request.
            now: the monotonic clock, in seconds.

        Returns:
            The vote. Write `changes` to the disk before it is sent.
        """
        match message:
            case Prepare():
                outcome = self._prepare(message, now)
            case Accept():
                outcome = self._accept(message)
            case Look():
                outcome = VoteOutcome.REPORTED if message.store in self.rows else VoteOutcome.NEW
            case Admit():
                outcome = self._admit(message)
        vote = Vote(self._proxy, message.store, outcome, message.token, self._identity)
        row, last = self.rows.get(message.store), self._last.get(message.store)
        if row is not None:
            vote.promised, vote.ballot, vote.view = row.promised, row.ballot, row.view
        if last is not None and last.at is not None:
            vote.silence_ms = int(max(0.0, now - last.at) * 1000)
        return vote

    def received(self, store: str, member: str, term: int, now: float) -> bool:
        """Record a sign of life of a primary.

        Returns:
            False if a primary with a higher term has sent before, so that this one is deposed.
        """
        known = self._last.get(store)
        if store not in self.rows:
            return True
        if known is not None and known.term > term:
            return False
        self._last[store] = _LastPrimary(term, member, now)
        return True

    def term(self, store: str) -> int:
        """Return the term of the last primary that sent since this proxy started; 0 if none did."""
        known = self._last.get(store)
        return known.term if known is not None else 0

    def disconnected(self, store: str, member: str) -> None:
        """Record that a member's connection has ended, so that its replacement need not wait for silence."""
        known = self._last.get(store)
        if known is not None and known.member == member:
            self._last[store] = known._replace(at=None)

    def _prepare(self, asked: Prepare, now: float) -> VoteOutcome:
        row = self.rows.get(asked.store)
        if row is None:
            return VoteOutcome.NEW
        if asked.kind == "takeover" and self._has_other_primary(asked, now):
            return VoteOutcome.PRIMARY_ALIVE
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
            return VoteOutcome.REPORTED
        if asked.identity != self._identity:
            return VoteOutcome.NEW
        if len(self.rows) >= REGISTERS_MAX:
            return VoteOutcome.FULL
        promised = max(asked.promised, asked.ballot)
        self._keep(RegisterRow(asked.store, promised, asked.ballot, asked.view, asked.sender))
        return VoteOutcome.REPORTED

    def _has_other_primary(self, asked: Prepare, now: float) -> bool:
        last = self._last.get(asked.store)
        if last is None or last.at is None or last.member == asked.member:
            return False
        sticky = asked.sticky_ms / 1000 or self._patience
        return now - last.at < min(self._patience, sticky)

    def _keep(self, row: RegisterRow) -> None:
        self.rows[row.store] = self._changes.registers[row.store] = row
