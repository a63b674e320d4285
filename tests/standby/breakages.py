"""Each rule of the register taken out of the shipped code, in place, for the length of a run.

The names are those of the model's rules; those that are not of the register are left out of the model's own code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pubsub.server.standby.election.proposer as proposing
from pubsub.protocol.register import Admit, Vote, VoteOutcome
from pubsub.proxy.register import Registers
from pubsub.proxy.remembered import RegisterRow
from pubsub.server.standby.election.acceptor_recovery import AcceptorRecovery
from pubsub.server.standby.election.proposer import Proposer
from tests.standby.shipped import STORE, view_of

FIRST = view_of((0, 1, "A", ("A", "B")))
prepare, accept, keep = Registers._prepare, Registers._accept, Registers._keep
init, wanted, promised = Proposer.__init__, Proposer._wanted, Proposer._promised


def anybody_takes(self: Proposer, attempt: Any, current: Any, ballot: int) -> Any:
    me = self.identity.member
    anyhow = attempt.kind == "takeover" and me in current.members
    return wanted(self, attempt, current._replace(in_sync=(me,)) if anyhow else current, ballot)


def one_is_enough(self: Proposer, *args: Any) -> None:
    init(self, *args)
    self.majority = 1


def promises_anything(self: Registers, asked: Any, now: float) -> VoteOutcome:
    row = self.rows.get(asked.store)
    if row is None or asked.ballot > row.promised:
        return prepare(self, asked, now)
    return VoteOutcome.PROMISED


def accepts_anything(self: Registers, asked: Any) -> VoteOutcome:
    row = self.rows.get(asked.store)
    if row is None or asked.ballot >= row.promised:
        return accept(self, asked)
    if asked.ballot >= row.ballot:
        keep(self, replace(row, ballot=asked.ballot, view=asked.view))
    return VoteOutcome.ACCEPTED


def keeps_in_memory(self: Registers, row: RegisterRow) -> None:
    self.rows[row.store] = row
    if row.promised % 2:
        self._changes.registers[row.store] = row


def one_token(self: Proposer, *args: Any) -> None:
    init(self, *args)
    random = mock.Mock()
    random.getrandbits, random.random = (lambda bits: 1), self._random.random
    self._random = random


def highest(said: Any, count: int, majority: int) -> Any:
    accepted = [one for one in said if one is not None]
    return max(accepted, key=lambda one: one[0])[1] if accepted else None


def backed_by_that_very_ballot(said: Any, count: int, majority: int) -> Any:
    accepted = sorted((one for one in said if one is not None), key=lambda one: one[0], reverse=True)
    for ballot, view in accepted:
        if sum(other == ballot for other, _ in accepted) + count - len(accepted) >= majority:
            return view
    return accepted[-1][1] if accepted else None


def same_term(self: Proposer, attempt: Any, current: Any, ballot: int) -> Any:
    view = wanted(self, attempt, current, ballot)
    return view._replace(term=current.term) if view is not None and attempt.kind == "resume" else view


def votes_anyhow(self: Registers, message: Any, now: float) -> Vote:
    self.rows.setdefault(message.store, RegisterRow(message.store, 0, 0, None))  # type: ignore[arg-type]
    return handle(self, message, now)


handle = Registers.handle


def admitted_at_once(self: AcceptorRecovery, proxy: str, identity: str, now: float) -> None:
    admit = Admit("s1", STORE, 1, identity, 0, 0, FIRST)
    self._send.append((proxy, admit))


def told_is_promised(self: Proposer, attempt: Any, proxy: str, vote: Vote, now: float) -> Any:
    if vote.outcome is VoteOutcome.REPORTED:
        vote = replace(vote, outcome=VoteOutcome.PROMISED)
    return promised(self, attempt, proxy, vote, now)


RULES: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "eligible": ((Proposer, "_wanted", anybody_takes),),
    "majority": ((Proposer, "__init__", one_is_enough),),
    "promise": ((Registers, "_prepare", promises_anything), (Registers, "_accept", accepts_anything)),
    "durable": ((Registers, "_keep", keeps_in_memory),),
    "told": ((Proposer, "_promised", told_is_promised),),
    "attempt": ((Proposer, "__init__", one_token),),
    "possible": ((proposing, "possibly_chosen", highest),),
    "possible_late": ((proposing, "possibly_chosen", backed_by_that_very_ballot),),
    "unsure": ((Proposer, "required", property(lambda self: self.view.in_sync if self.view is not None else ())),),
    "settle": ((Proposer, "unsettled", property(lambda self: False, lambda self, value: None)),),
    "new_term": ((Proposer, "_wanted", same_term),),
    "amnesia": ((Registers, "handle", votes_anyhow),),
    "readmit": ((AcceptorRecovery, "_new", admitted_at_once),),
    "forget": ((Proposer, "forget", lambda self, identity, now: None),),
    "sticky": (
        (Registers, "_has_other_primary", lambda self, asked, now: False),
        (Proposer, "_receives", lambda self, vote: False),
    ),
}
"""A rule to the replacement of the code that keeps it."""


@contextlib.contextmanager
def broken(name: str) -> Iterator[None]:
    """The shipped code without one rule."""
    with contextlib.ExitStack() as stack:
        for where, what, instead in RULES[name]:
            stack.enter_context(mock.patch.object(where, what, instead, create=name == "settle"))
        yield
