"""How the standby of a primary stands, and since when: what operators are told of the two members.

making       the register is being made, which all proxies have to answer
in sync      both members have all that was answered
catching up  the other one is heard, and gets what it lacks
copying      the same, and what it lacks is copied by pages
alone        nothing is heard of another member, or its disk is full
single       the store has one member, by an operator's choice
"""

from __future__ import annotations

from typing import Any, Final

from pubsub.server.standby.member import Member

CHANGES: Final = {
    "in sync": "the standby is in sync",
    "dropped": "no standby in sync any more: what is answered from now on is on this member's disk alone",
}
"""What the log says of changes of a state that change what a lost disk costs."""


class Standing:
    """The state of one primary's standby.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: float) -> None:
        self.state, self._since = "", now
        self._without: float | None = None

    def look(self, member: Member, copying: bool, now: float) -> str:
        """Take note of a change; after every loop of a primary.

        Args:
            member: which is the primary.
            copying: whether it copies its store to the other one.
            now: monotonic seconds.

        Returns:
            What is to be told of it, one of `CHANGES`; "" for nothing.
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
        """What is told of the two members.

        Args:
            member: which is the primary.
            address: where the other one reaches it.
            copied, now: as for `facts`.

        Returns:
            `member`, `role`, `address`, `term`, `members` and `in_sync` (as far as this one knows), `addresses` (of
            members, by ID, as far as known), `held` (loops whose answers wait), `votes` (what each proxy said last:
            told, it has a vote; new, it has none), and what `facts` says of the other member.
        """
        view, leading = member.proposer.view or member.view, member.leading
        in_sync = leading.in_sync if leading is not None else view.in_sync if view is not None else ()
        other = {leading.standby: leading.address} if leading is not None and leading.address else {}
        return {
            "member": member.identity.member,
            "role": member.role.value,
            "address": address,
            "term": member.term,
            "members": [member.identity.member] if view is None else list(view.members),
            "in_sync": sorted(in_sync),
            "addresses": {member.identity.member: address} | other,
            "held": 0 if leading is None else leading.held,
            "votes": {proxy: outcome.value for proxy, outcome in sorted(member.readmission.standing.items())},
            **self.facts(member, copied, now),
        }

    def facts(self, member: Member, copied: int, now: float) -> dict[str, Any]:
        """What is told of it.

        Args:
            member: which is the primary.
            copied: percent of the store that the other member has of a copy.
            now: monotonic seconds.

        Returns:
            `state`, `since_seconds` (in this state), `without_seconds` (without a standby in sync; null where there is
            one, or is to be none), `lag_loops` and `lag_bytes` (what the standby has not confirmed, of one that is
            waited for; else null), and `copied_percent` (null while nothing is copied).
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
