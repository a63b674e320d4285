"""A member as standby: it appends entries, acknowledges them, and is copied where it ran too far."""

from __future__ import annotations

from tests.standby.model.ballots import Ballots
from tests.standby.model.rules import ID, OTHER, ROOT, Entry


class Following(Ballots):
    """A member as standby."""

    def ask_sync(self) -> None:
        self.nonce = self.world.random.getrandbits(30)
        first = self.applied if self.world.rules["copy_whole"] else 0
        ids = ((self.history[first - 1][0] if first else ROOT), *(e[0] for e in self.history[first:]))
        self.send(OTHER[self.name], "sync", self.floor(), ids, self.nonce)

    def on_loop(self, source: str, term: int, loop: int, after: ID, entries: tuple[Entry, ...], committed: ID) -> None:
        world = self.world
        if self.role == "primary":
            if not world.rules["old_term"] and term < self.term:
                self.send(source, "acknowledge", term, loop, after)
            elif term > self.term and world.rules["old_term"]:
                self.step_down()
            return
        if term < self.floor() and world.rules["old_term"]:
            return
        if term > self.known and self.attempt:
            self.attempt = None
        self.known, self.heard = max(self.known, term), world.now
        for place, entry in enumerate(entries):
            if not self.append(entry):
                if self.nonce:
                    self.beside = [*self.beside, *entries[place:]][-200:]
                break
        place = self.index.get(after, -1 if after == ROOT else None)
        if place is None:
            if world.random.random() < 0.3:
                self.ask_sync()
            return
        # The fsync covers the entries written so far.
        delay = 1 + (world.random.random() < 0.3)
        if world.rules["fsync"]:
            world.timer(self, delay, self.synced, term, loop, after, committed, self.news, len(self.history))
        else:
            world.timer(self, delay + 20, self.saved_now, self.news, len(self.history))
            self.synced(term, loop, after, committed, -1, 0)

    def append(self, entry: Entry) -> bool:
        ident, previous, _ = entry
        rules = self.world.rules
        if ident in self.index:
            return True
        if ident <= self.tail() and rules["late"]:
            return True
        place = self.index.get(previous, -1 if previous == ROOT else None)
        if place is None and not rules["previous"]:
            place = len(self.history) - 1
        if place is None:
            return False
        if not rules["previous"] and ident[0] == self.tail()[0]:
            place = len(self.history) - 1
        if place + 1 < len(self.history):
            if place + 1 < self.applied and not rules["copy_whole"]:
                place = len(self.history) - 1
            elif place + 1 < self.applied:
                if not rules["unapplied"]:
                    self.world.object("applied and taken back", self.name, entry)
                return False
            for gone in self.history[place + 1 :]:
                del self.index[gone[0]]
            if self.history[place + 1 :]:
                self.news += 1
            del self.history[place + 1 :]
            self.saved = min(self.saved, place + 1)
        self.history.append(entry)
        self.index[ident] = place + 1
        self.nonce = 0
        return True

    def saved_now(self, news: int, length: int) -> None:
        if news == self.news:
            self.saved = max(self.saved, min(length, len(self.history)))

    def synced(self, term: int, loop: int, after: ID, committed: ID, news: int, length: int) -> None:
        if self.role == "primary":
            return
        if self.disk_is_full():
            self.refuse(term)
            return
        if news == self.news:
            self.saved = max(self.saved, min(length, len(self.history)))
        elif news != -1:
            return
        if after != ROOT and after not in self.index:
            return
        if term < self.floor() and self.world.rules["old_term"]:
            return
        self.send(OTHER[self.name], "acknowledge", term, loop, self.history[self.saved - 1][0] if self.saved else ROOT)
        if not self.world.rules["unapplied"]:
            self.applied = len(self.history)
        elif committed in self.index:
            self.applied = max(self.applied, min(self.saved, self.index[committed] + 1))

    def disk_is_full(self) -> bool:
        if self.full > 0:
            self.full -= 1
            return True
        return not self.world.calm and self.world.random.random() < self.world.tight / 20

    def refuse(self, term: int) -> None:
        """Drop the unwritable entries and inform the primary, which need not wait for a silence then."""
        self.world.stats["full standby"] += 1
        for gone in self.history[self.saved :]:
            del self.index[gone[0]]
        del self.history[self.saved :]
        self.news += 1
        self.send(OTHER[self.name], "full", term)

    def on_copy(self, source: str, term: int, nonce: int, entries: tuple[Entry, ...]) -> None:
        world = self.world
        if self.role == "primary" or (term < self.floor() and world.rules["old_term"]):
            return
        if nonce != self.nonce and world.rules["nonce"]:
            return
        world.say(self.name, "takes a copy of", len(entries), "instead of", len(self.history))
        self.history = list(entries)
        self.applied = self.saved = len(self.history)
        self.index = {entry[0]: place for place, entry in enumerate(self.history)}
        self.news += 1
        self.nonce, self.known, self.heard = 0, max(term, self.known), world.now
        for entry in self.beside:  # They came meanwhile, and go behind the copy.
            world.stats["beside"] += self.append(entry)
        self.beside = []
        self.ask_sync()

    def on_handover(self, source: str, term: int, tail: ID) -> None:
        if self.role == "standby" and term >= self.floor() and tail == self.tail() and not self.attempt:
            self.handed = tail
            self.begin("handover")
