"""One member's side of the register: ballots, and the acceptor_recovery of proxies that lost their data."""

from __future__ import annotations

from typing import Any

from tests.standby.model.node import Node
from tests.standby.model.rules import OTHER, TRY, Accepted, Rules, Value


def possibly_chosen(said: list[Accepted | None], count: int, majority: int, rules: Rules) -> Value | None:
    """The value of the highest possibly chosen ballot, given the last accepted values of these acceptors."""
    said = sorted((s for s in said if s), key=lambda s: s[0], reverse=True)
    if not said:
        return None
    if not rules["possible"]:
        return said[0][1]
    silent = count - len(said)
    for ballot, value in said:
        if rules["possible_late"]:
            backers = sum(other >= ballot for other, _ in said)
        else:
            backers = sum(other == ballot for other, _ in said)
        if backers + silent >= majority:
            return value
    return said[-1][1]


def may_name(name: str, said: list[Accepted | None], count: int, majority: int) -> bool:
    """Whether a value possibly in force, given the last accepted values of these acceptors, names this primary."""
    accepted = sorted((s for s in said if s), key=lambda s: s[0], reverse=True)
    for ballot, (_, _, primary, _) in accepted:
        if sum(other == ballot for other, _ in accepted) >= majority:
            return primary == name
        backers = sum(other >= ballot for other, _ in accepted)
        if primary == name and backers + count - len(accepted) >= majority:
            return True
    return False


class Ballots(Node):
    """A member as proposer."""

    def start_ballots(self, first: bool) -> None:
        """Nothing is remembered of ballots from an earlier life."""
        self.attempt, self.seen, self.used, self.quiet = None, 0, 0, 0
        self.unsettled = not first  # The proposal of an earlier life may be chosen.
        self.forgot, self.forgotten = {}, set()

    def may_begin(self, kind: str) -> bool:
        return not self.attempt and self.world.now >= self.quiet

    def expire(self) -> None:
        """End an attempt that took too long."""
        if self.attempt and self.world.now - self.attempt["at"] > TRY:
            self.end_attempt()

    def watch(self) -> None:
        """A primary's question to proxies at every beat: in this model they report their lost data themselves."""

    def may_join(self) -> bool:
        """Whether the other member may be added now."""
        return not self.attempt

    def require(self, name: str) -> None:
        self.required.add(name)

    def unrequire(self, name: str) -> None:
        self.required.discard(name)

    def begin(self, kind: str) -> None:
        world = self.world
        self.used = max(self.used, self.seen) // 2 * 2 + 2 + (self.name == "B")
        self.seen = self.used
        token = world.random.getrandbits(30) if world.rules["attempt"] else 0
        self.attempt = {
            "kind": kind,
            "ballot": (self.used, token),
            "promises": {},
            "accepts": set(),
            "value": None,
            "at": world.now,
            "out": False,
        }
        for proxy in world.proxies:
            self.send(proxy.name, "prepare", self.used, token, kind)

    def end_attempt(self) -> None:
        """Two members that retry at once would block each other permanently.

        A member that may not be primary would block the one that may.
        """
        attempt, self.attempt = self.attempt, None
        self.quiet = self.world.now + (60 if attempt["out"] else 5) + self.world.random.randrange(40)
        if (
            attempt["kind"] == "add_to_sync"
            and not self.world.rules["unsure"]
            and self.role == "primary"
            and attempt["value"]
        ):
            self.required = set(self.in_sync)

    def on_refused(self, source: str, ballot: tuple[int, int], promised: int) -> None:
        self.seen = max(self.seen, promised)
        if self.attempt and self.attempt["ballot"] == ballot:
            self.end_attempt()

    def on_promised(self, source: str, ballot: tuple[int, int], accepted: Accepted | None, identity: int) -> None:
        attempt = self.attempt
        if not attempt or attempt["ballot"] != ballot or attempt["value"]:
            return
        attempt["promises"][source] = accepted, identity
        if len(attempt["promises"]) >= self.quorum():
            self.propose(attempt)

    def quorum(self) -> int:
        return self.world.majority if self.world.rules["majority"] else 1

    def propose(self, attempt: dict[str, Any]) -> None:
        world, kind, (ballot, token) = self.world, attempt["kind"], attempt["ballot"]
        said = [accepted for accepted, _ in attempt["promises"].values()]
        value = possibly_chosen(said, len(world.proxies), self.quorum(), world.rules)
        if value is None:
            return
        _, term, primary, in_sync = value
        new = None
        if kind == "takeover" and (self.name in in_sync or not world.rules["eligible"]):
            new = (ballot, ballot, self.name, (self.name,))
        elif kind == "handover" and self.name in in_sync and self.tail() == self.handed:
            new = (ballot, ballot, self.name, ("A", "B"))
        elif kind == "resume" and primary == self.name:
            new = (ballot, ballot if world.rules["new_term"] else term, self.name, in_sync)
        elif kind in ("remove_from_sync", "add_to_sync") and self.role == "primary":
            if primary == self.name and term == self.term:
                new = (ballot, term, self.name, (self.name,) if kind == "remove_from_sync" else ("A", "B"))
            elif len(said) >= world.majority:
                self.step_down()
                return
        if new is None:
            # All may have answered later; a value of a minority that hides the chosen one is recognized then.
            attempt["out"] = True
            if kind == "resume" and not may_name(self.name, said, len(world.proxies), self.quorum()):
                self.unsettled = False
            if len(said) == len(world.proxies):
                self.end_attempt()
            return
        attempt["value"], self.unsettled = new, True
        some = world.proxies
        if not world.calm and world.random.random() < world.halves:  # It dies in the middle of this.
            some = world.random.sample(some, world.random.randrange(len(some)))
            world.at(world.now, world.crash, self, True)
        for proxy in some:
            self.send(proxy.name, "accept", ballot, token, new)

    def on_accepted(self, source: str, ballot: tuple[int, int]) -> None:
        attempt = self.attempt
        if not attempt or attempt["ballot"] != ballot or not attempt["value"]:
            return
        attempt["accepts"].add(source)
        if len(attempt["accepts"]) < self.quorum():
            return
        kind, (_, term, _, in_sync) = attempt["kind"], attempt["value"]
        self.attempt, self.unsettled = None, False
        self.world.say(self.name, "has chosen", kind, attempt["value"])
        if kind in ("takeover", "resume", "handover"):
            if self.role != "primary":
                self.activate(term, in_sync)
        elif self.role == "primary" and term == self.term:
            self.in_sync = in_sync
            self.required = set(in_sync)
            self.catch_up = None
            self.release()

    # Proxies that lost their data

    def on_here(self, source: str, identity: int) -> None:
        if self.role != "primary":
            return
        if self.world.rules["readmit"]:
            self.forget(source, identity)
            self.forgot[source] = [identity, {self.name}, {}]
            self.send(OTHER[self.name], "forget", source, identity)
        else:
            self.send(
                source,
                "install",
                identity,
                *([0, (0, (0, 1, "A", ("A", "B")))] if self.world.rules["amnesia"] else (0, None)),
            )

    def on_new(self, source: str, identity: int) -> None:
        pass

    def forget(self, proxy: str, identity: int) -> None:
        """End attempts that may count on a promise or vote of a proxy's earlier life; later ones cannot."""
        if (proxy, identity) not in self.forgotten:
            self.forgotten.add((proxy, identity))
            if self.attempt:
                self.end_attempt()

    def on_forget(self, source: str, proxy: str, identity: int) -> None:
        self.forget(proxy, identity)
        self.send(source, "forgotten", proxy, identity)

    def on_forgotten(self, source: str, proxy: str, identity: int) -> None:
        state = self.forgot.get(proxy)
        if state and state[0] == identity:
            state[1].add(source)
            for other in self.world.proxies:
                if other.name != proxy:
                    self.send(other.name, "read", (proxy, identity))

    def on_told(self, source: str, token: tuple[str, int], promised: int, accepted: Accepted | None) -> None:
        proxy, identity = token
        state, world = self.forgot.get(proxy), self.world
        if not state or state[0] != identity:
            return
        state[2][source] = promised, accepted
        if len(state[2]) >= len(world.proxies) - world.majority + 1:
            best = max((a for _, a in state[2].values()), key=lambda a: a[0])
            self.send(proxy, "install", identity, max(p for p, _ in state[2].values()), best)
            del self.forgot[proxy]
