"""A member as primary: loops with held answers, the required members, joining and handing over."""

from __future__ import annotations

import collections

from tests.standby.model.ballots import Ballots
from tests.standby.model.rules import BEAT, ID, OTHER, PATIENCE, ROOT, Request
from tests.standby.model.topic import Topic


class Leading(Ballots):
    """A member as primary."""

    def activate(self, term: int, in_sync: tuple[str, ...]) -> None:
        world = self.world
        if self.tail()[0] > term:
            world.object("term went back", self.name)
        self.role, self.term, self.known, self.number, self.loop = "primary", term, term, 0, 0
        if not world.rules["new_term"]:
            self.number = self.tail()[1] if self.tail()[0] == term else 0
        self.applied = self.saved = len(self.history)
        self.state = Topic(world.move != "take")
        for entry in self.history:
            for op in entry[2]:
                self.state.apply(op)
        self.held, self.inbox, self.busy, self.done = collections.deque(), [], False, 0
        self.in_sync, self.required, self.catch_up = in_sync, set(in_sync), None
        self.mate = {
            "loop": -1,
            "tail": None,
            "heard": world.now if OTHER[self.name] in in_sync else -999,
            "sent": ROOT,
        }
        self.stalled, self.attempt = False, None
        self.frozen_by = None
        world.stats["terms"] += 1
        self.inbox.append((None, None, None, ("begin",)))
        self.turn()

    def on_asked(self, proxy: str, client: str, number: int, request: Request) -> None:
        if self.role != "primary" or self.stalled:
            return
        self.inbox.append((proxy, client, number, request))
        if not self.busy:
            self.turn()

    def turn(self) -> None:
        """One loop: everything that waits is handled, sent to the standby and committed."""
        self.busy, inbox, self.inbox = True, self.inbox, []
        world, ops, out, early = self.world, [], [], []
        for proxy, client, number, request in inbox:
            kind = request[0]
            if kind == "begin":
                op = ("begin",)
            elif kind == "freeze":
                op = None if not self.state.held or self.state.frozen else ("freeze",)
            elif kind == "given":
                op = ("given",) if self.state.frozen and not self.state.given else None
            elif kind == "commit":
                op = None if self.state.held else ("join", request[1])
                (out if world.rules["done_moves"] else early).append(("R", "done"))
            else:
                answer, op = self.state.serve(request)
                if proxy:
                    out.append((proxy, "reply", client, number, answer))
            if op:
                self.state.apply(op)
                ops.append(op)
        if ops:
            self.number += 1
            entry = ((self.term, self.number), self.tail(), tuple(ops))
            self.history.append(entry)
            self.index[entry[0]] = len(self.history) - 1
        if self.state.frozen and not self.state.given and self.other_due():
            (out if world.rules["send_moves"] else early).append(("R", "commit", self.state.copy()))
        if ops or self.announce_due():
            (out if world.rules["announce"] else early).extend(
                (proxy.name, "announce", self.term, len(self.history), self.state.held and not self.state.given)
                for proxy in world.proxies
            )
        for message in early:
            self.send(*message)
        self.loop += 1
        self.held.append([self.loop, out, bool(ops), len(self.history)])
        self.send_loop()
        slow = world.random.randrange(4, 12) if world.random.random() < world.slow and not world.calm else 0
        world.timer(self, 1 + slow + (world.random.random() < 0.3), self.committed, bool(ops))

    def other_due(self) -> bool:
        due = self.frozen_by is None or self.world.now - self.frozen_by > 12
        if due:
            self.frozen_by = self.world.now
        return due

    announced = -99

    def announce_due(self) -> bool:
        due = self.world.now - self.announced >= BEAT
        if due:
            self.announced = self.world.now
        return due

    def send_loop(self, since: int | None = None) -> None:
        """The entries that the standby seems to lack; an empty message asks it to confirm the term."""
        mate = self.mate
        start = self.index.get(mate["sent"], -1) + 1 if since is None else since
        if since is None and mate["sent"] != ROOT and mate["sent"] not in self.index:
            start = len(self.history)
        entries = tuple(self.history[start:]) if start >= self.kept else ()
        mate["sent"] = self.tail()
        self.send(OTHER[self.name], "loop", self.term, self.loop, self.tail(), entries, self.committed_id())

    def committed_id(self) -> ID:
        """The last entry that every required member has, as far as we know."""
        place = self.saved - 1
        if OTHER[self.name] in self.required and self.world.rules["unapplied"]:
            place = min(place, self.index.get(self.mate["tail"], -1))
        return self.history[place][0] if place >= 0 else ROOT

    def committed(self, wrote: bool) -> None:
        full = self.full > 0 or (not self.world.calm and self.world.random.random() < self.world.tight)
        if wrote and full and self.history[-1][0] == (self.term, self.number) and self.number > 1:
            self.full = max(0, self.full - 1)
            self.world.stats["reverted"] += 1
            entry = self.history.pop()
            self.world.say(self.name, "disk full, takes back", entry)
            del self.index[entry[0]]
            self.state = Topic(self.world.move != "take")
            for one in self.history:
                for op in one[2]:
                    self.state.apply(op)
            item = self.held[-1] if self.held and self.held[-1][0] == self.loop else [0, [], False, 0]
            item[1] = [
                (*m[:4], ("full",)) if m[1] == "reply" else m
                for m in item[1]
                if m[1] not in ("announce", "commit", "done")
            ]
            item[2] = False
            self.frozen_by, self.announced = None, -99
        self.saved = self.applied = len(self.history)
        self.done = self.loop
        self.busy = False
        if not self.world.rules["hold"]:
            self.release()
        self.release()
        if self.inbox:
            self.turn()

    def release(self) -> None:
        rules = self.world.rules
        needed = [self.mate["loop"]] if OTHER[self.name] in self.required and rules["hold"] else []
        if rules["own"]:
            needed.append(self.done)
        least = min(needed, default=self.done)
        while self.held:
            loop, out, wrote, length = self.held[0]
            if loop > least:
                # Without the fence a loop without a change waits only for the earlier changes.
                if rules["fence"] or wrote or loop > self.done:
                    break
                if OTHER[self.name] in self.required and self.index.get(self.mate["tail"], -1) < length - 1:
                    break
            self.held.popleft()
            for message in out:
                self.send(*message)

    def lead(self) -> None:
        """The work of a primary at every beat."""
        world, mate, name = self.world, self.mate, OTHER[self.name]
        well = world.now - mate["heard"] < PATIENCE - 5
        if self.stalled and world.now - self.stalled > PATIENCE:
            self.stalled = False
        if self.stalled and not self.held and not self.busy and not self.inbox:
            self.send(name, "handover", self.term, self.tail())
        if name in self.required:
            joined = name in self.in_sync
            if not well or mate.get("copy") or mate.get("full"):
                if self.catch_up is not None and not self.catch_up["proposed"]:
                    self.unrequire(name)
                    self.catch_up = None
                    self.release()
                elif not world.rules["chosen"]:
                    self.unrequire(name)
                    self.release()
                elif not self.attempt:
                    self.begin("remove_from_sync")
            elif (
                (not joined or (self.unsettled and world.rules["settle"]))
                and not self.attempt
                and (mate["loop"] >= self.catch_up["since"] if self.catch_up else True)
            ):
                if self.catch_up:
                    self.catch_up["proposed"] = True
                self.begin("add_to_sync")
        elif (
            well
            and not mate.get("copy")
            and not mate.get("full")
            and mate["loop"] >= self.loop - (2 if world.rules["join_all"] else 50)
            and self.may_join()
            and not self.stalled
        ):
            self.catch_up = {"since": self.loop, "proposed": False}
            if world.rules["join_first"]:
                self.require(name)
            if not world.rules["join_first"] or not world.rules["join_all"] or mate["loop"] >= self.loop:
                self.catch_up["proposed"] = True
                self.begin("add_to_sync")
        if not self.busy:
            if self.announce_due() or self.held or (self.state.frozen and not self.state.given):
                self.announced = -99
                self.turn()
            else:
                self.send_loop()
        else:
            self.send_loop()

    def on_acknowledge(self, source: str, term: int, loop: int, tail: ID) -> None:
        if self.role != "primary" or term != self.term:
            return
        mate = self.mate
        mate["copy"] = mate["full"] = False
        if loop > mate["loop"] or loop == self.loop:
            mate["heard"] = self.world.now
        if loop > mate["loop"]:
            mate["loop"] = loop
        if tail in self.index:
            mate["tail"] = tail
        catch_up = self.catch_up
        if (
            catch_up
            and not catch_up["proposed"]
            and not self.attempt
            and mate["loop"] >= catch_up["since"]
            and source in self.required
        ):
            catch_up["proposed"] = True
            self.begin("add_to_sync")
        self.release()

    def on_full(self, source: str, term: int) -> None:
        """The standby cannot write: it is as if it were silent, known at once."""
        if self.role == "primary" and term == self.term:
            self.mate["full"] = True

    def on_sync(self, source: str, known: int, ids: tuple[ID, ...], nonce: int) -> None:
        """The standby reports its end: it gets the missing entries, or everything."""
        if self.role != "primary":
            return
        if known > self.term and self.world.rules["old_term"]:
            self.step_down()
            return
        mate = self.mate
        if not self.world.rules["progress"]:
            mate["heard"] = self.world.now
        for one in reversed(ids):
            place = self.index.get(one, -1 if one == ROOT else None)
            if place is not None and place + 1 >= self.kept:
                self.send_loop(since=place + 1)
                return
        mate["copy"] = True
        self.world.stats["copies"] += 1
        self.world.at(
            self.world.now + self.world.random.choice((2, 15, 40)),
            self.world.fire,
            self,
            self.life,
            self.send,
            (source, "copy", self.term, nonce, tuple(self.history[: self.saved])),
        )

    def on_deposed(self, source: str, term: int) -> None:
        if self.role == "primary" and term > self.term:
            self.step_down()

    def switch(self) -> None:
        """A planned change: serve nothing new, and hand over when all is answered."""
        if self.up and self.role == "primary" and set(self.in_sync) == {"A", "B"} and not self.stalled:
            self.stalled = self.world.now

    def freeze(self) -> None:
        if self.up and self.role == "primary" and self.state.held:
            self.put_in(("freeze",))

    def on_done(self, source: str) -> None:
        if self.role == "primary" and self.state.frozen:
            self.put_in(("given",))

    def on_commit(self, source: str, payload: Topic) -> None:
        if self.role == "primary":
            self.put_in(("commit", payload))

    def put_in(self, request: Request) -> None:
        self.inbox.append((None, None, None, request))
        if not self.busy:
            self.turn()
