"""The state of a primary's standby and since when, as `pubsub status` shows it to operators.

making       the register is being made; all proxies must answer first
in sync      both members have all answered data
catching up  the other member is heard, and receives the entries that it lacks
copying      the other member is heard, and receives a copy of the store by pages
alone        no other member is heard, or its disk is full
single       the store has one member, by the operator's choice
"""

from __future__ import annotations

from typing import Any, Final

from pubsub.protocol.register import WRITTEN_OUTCOMES
from pubsub.server.standby.member import Member

CHANGES: Final = {
    "in sync": "the standby is in sync",
    "dropped": "no standby is in sync: answers from now on are on this member's disk alone",
}
"""Log texts for changes that decide how much a lost disk would cost."""


class StandbyStatus:
    def __init__(self, now: float) -> None:
        self.state, self._since = "", now
        self._without: float | None = None

    def look(self, member: Member, copying: bool, now: float) -> str:
        """Record a change of the state. Called after every loop of a primary.

        Args:
            member: the primary.
            copying: True if the primary copies its store to the other member.
            now: monotonic seconds.

        Returns:
            The key in `CHANGES` of the text to log; "" for none.
        """
        state = _state(member, copying, now)
        told = ""
        if state != self.state:
            told = state if state == "in sync" else "dropped" if self.state == "in sync" else ""
            self.state, self._since = state, now
            lacks = state not in {"in sync", "single"}
            self._without = (now if self._without is None else self._without) if lacks else None
        return told

    def report(self, member: Member, address: str, copied: int, now: float) -> dict[str, Any]:
        """Return the fields about both members.

        Args:
            member: the primary.
            address: the address at which the other member reaches the primary.
            copied, now: as for `facts`.

        Returns:
            `member`, `role`, `address`, `term`, `members` and `in_sync` (as far as the primary knows), `addresses` (by
            member ID, as far as known), `held` (loops with held answers), `votes` (each proxy's last answer: told, it
            has a vote; new, it has none), and the fields of `facts`.
        """
        view, leading = member.proposer.view or member.view, member.leading
        in_sync = leading.in_sync if leading is not None else view.in_sync if view is not None else ()
        other = {leading.standby: leading.address} if leading is not None and leading.address else {}
        votes = member.acceptor_recovery.outcomes
        return {
            "member": member.identity.member,
            "role": member.role.value,
            "address": address,
            "term": member.term,
            "members": [member.identity.member] if view is None else list(view.members),
            "in_sync": sorted(in_sync),
            "addresses": {member.identity.member: address} | other,
            "held": 0 if leading is None else leading.held,
            "votes": {proxy: WRITTEN_OUTCOMES.get(outcome, outcome.value) for proxy, outcome in sorted(votes.items())},
            **self.facts(member, copied, now),
        }

    def facts(self, member: Member, copied: int, now: float) -> dict[str, Any]:
        """Return the fields about the standby.

        Args:
            member: the primary.
            copied: percent of the store that the other member has of a copy.
            now: monotonic seconds.

        Returns:
            `state`, `since_seconds` (in this state), `without_seconds` (without a standby in sync; null if one is in
            sync or none is wanted), `lag_loops` and `lag_bytes` (not confirmed by the standby; null if the primary does
            not wait for it), and `copied_percent` (null while nothing is copied).
        """
        leading = member.leading
        waited = leading is not None and leading.standby in leading.required
        _, loops, size = leading.lag(now) if leading is not None else (False, 0, 0)
        return {
            "state": self.state,
            "since_seconds": round(now - self._since, 1),
            "without_seconds": None if self._without is None else round(now - self._without, 1),
            "lag_loops": loops if waited else None,
            "lag_bytes": size if waited else None,
            "copied_percent": copied if self.state == "copying" else None,
        }


def _state(member: Member, copying: bool, now: float) -> str:
    leading, view = member.leading, member.proposer.view or member.view
    if leading is None or member.founding is not None:
        return "making"
    if len(leading.in_sync) > 1:
        return "in sync"
    if copying:
        return "copying"
    if leading.lag(now)[0]:
        return "catching up"
    return "alone" if view is None or len(view.members) > 1 else "single"
