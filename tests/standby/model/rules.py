"""The rules of a standby, by the names under which each can be left out, and the model's times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BEAT, PATIENCE, TRY = 10, 30, 14
"""Ticks between heartbeats, after which a silent peer counts as gone, and that an attempt at the register takes."""

SERVES_WITHIN, PAIRED_WITHIN = 400, 700
"""Ticks after the network healed by which all clients are served, and by which both members are in sync again."""

ID = tuple[int, int]
"""Of an entry: the term, and the number within it."""

ROOT: ID = (0, 0)
Change = tuple[Any, ...]
Entry = tuple[ID, ID, tuple[Change, ...]]
"""An entry: its ID, the ID of its predecessor, its changes."""

Request = tuple[Any, ...]
Answer = tuple[Any, ...]
Value = tuple[int, int, str, tuple[str, ...]]
"""Of the register: the ballot that it was proposed under, the term, the primary, the members in sync."""

Accepted = tuple[int, Value]
"""The accepted value of an acceptor: the ballot and the value."""

Rules = Mapping[str, bool]

RULES = {
    "hold": "what a loop answers leaves only when every required member has its changes on disk",
    "own": "... and when the primary's own commit is through",
    "fsync": "the standby acknowledges after its fsync",
    "chosen": "the primary goes on without a silent standby only after a majority of proxies accepted that",
    "progress": "... and silent is who does not acknowledge, heard or not (a link may be cut in one direction only)",
    "eligible": "only a member of the in-sync set may become primary",
    "majority": "a view counts when a majority of the configured proxies has accepted it",
    "promise": "a proxy refuses ballots below the highest it has promised",
    "durable": "a proxy's promise and acceptance are on disk before it answers",
    "attempt": "a proxy's answer counts only for the very attempt that asked, not for one of the same number before",
    "possible": "a value that cannot have been chosen does not count (a minority accepted it, its author died)",
    "possible_late": "... an acceptor that has accepted a later ballot may have accepted it before",
    "join_first": "the primary waits for a joining member's acknowledgements before it proposes that one",
    "join_all": "... and proposes it only when it has all that was answered",
    "unsure": "while a proposal's outcome is unknown, both the old and the new set are required",
    "settle": "... until one of them is chosen: else the register says less than the primary believes",
    "new_term": "every start of a primary is a new term, from the register",
    "old_term": "a member takes nothing from a term below its own",
    "previous": "an entry is attached to the entry it follows, by term and number, not by position",
    "late": "an entry below the end that the standby has is ignored",
    "unapplied": "the standby applies only what is committed on all required members; the rest can be taken back",
    "fence": "an answer that needed no commit leaves only after the standby has confirmed the term since",
    "announce": "announcements wait like answers",
    "send_moves": "steps of a move wait like answers (the giver's side)",
    "done_moves": "'done' waits like answers (the receiver's side)",
    "nonce": "a copy counts only as the answer to the latest request for one",
    "copy_whole": "a member whose store is not a prefix of the primary's is copied anew, not appended to",
    "amnesia": "a proxy that lost its data has no vote",
    "readmit": "... until both members forgot its old promises and enough others told what they promised",
    "sticky": "a proxy that hears the primary does not help to replace it",
}

OTHER = {"A": "B", "B": "A"}
