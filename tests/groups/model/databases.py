"""Members with their state in a database: one looks another up, so that nothing waits for a member that stays away.

Two members share a database, and a third one has another. A member has a life in its database. A commit in another
life than the last one is refused, and the member loads its state again. All commits are durable, and no disk is lost.
In half of the runs the first member never comes back.

The rules are those of docs/explanation/group-databases.md, GD1, GD2, GD3, GD4, GD5 and GD6.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.groups.model.holder import Holder
from tests.groups.model.member import Member
from tests.groups.model.messages import Answer, MemberID, Position, Request, Settle, Shown, Work
from tests.groups.model.process import Process
from tests.groups.model.rules import Rules
from tests.groups.model.topic import Topic
from tests.groups.model.world import World

DATABASES: Final = {
    "same": "GD1: a member is looked up only by one whose state is in the same database",
    "ended": "GD2: the life of the silent member is replaced",
    "before": "GD3: the life is replaced before the rows are read",
    "unmarked": "GD4: what goes back has no mark",
    "attempts": "GD4: the attempts of the silent member are told",
    "went_on": "GD5: of a member that went on after the look was asked for nothing goes back",
    "again": "GD6: the server asks again until the claims are gone",
}

HOMES: Final = {"m0": 1, "m1": 1, "m2": 2}
"""The database of each member."""


class LifeEnded(Exception):
    """A commit was refused, because another life has the member's state."""


class DatabaseHolder(Holder):
    """A server that asks members to look up silent ones.

    Attributes:
        quiet: members that are not heard.
        asked: looks that were asked for.
    """

    def forget_memory(self) -> None:
        super().forget_memory()
        self.quiet: set[MemberID] = set()
        self.asked: set[tuple[MemberID, int]] = set()

    def silent(self, key: MemberID) -> None:
        super().silent(key)
        self.quiet.add(key)

    def handle(self, request: Request, now: int, *, sole: bool, keyed: bool) -> Answer | None:
        if isinstance(request, Settle):
            if self.serving is not None:
                self.settle_other(self.serving, request, now)
            return None
        if isinstance(request, Work):
            self.quiet.discard(request.sender)
        answer = super().handle(request, now, sole=sole, keyed=keyed)
        if answer is None or answer.outcome != "shown" or not isinstance(request, Work) or self.live is None:
            return answer
        row = self.live.members[request.sender]
        if row.number == request.number:
            row.database = request.database
        return replace(answer, silent=self.to_look_up(request.sender))

    def to_look_up(self, key: MemberID) -> tuple[MemberID, int] | None:
        """Return a silent member with claims that a member can look up."""
        assert self.live is not None
        mine = self.live.members[key]
        for other, row in self.live.members.items():
            look = other, row.number
            if other not in self.quiet or not row.held or other == key:
                continue
            if row.database != mine.database and self.rules["same"]:
                continue
            if look in self.asked and not self.rules["again"]:
                continue
            self.asked.add(look)
            return look
        return None

    def settle_other(self, topic: Topic, found: Settle, now: int) -> None:
        """Take the word of a member about a silent one."""
        group, (key, number) = self.live, found.silent
        if group is None or group.number != found.subscription:
            return
        row = group.members.get(key)
        if row is None or (row.database != found.database and self.rules["same"]):
            return
        for position in found.done:
            topic.finish(position, row, self.rules)
        if self.rules["went_on"] and (number != row.number or key not in self.quiet):
            return
        back = Work(key, 0, group.number, number, tried=found.tried)
        held = list(row.held)
        self.settle(topic, row, back, now)
        self.offers.pop(key, None)
        if not self.rules["unmarked"]:
            group.doubtful |= set(held)


class DatabaseMember(Member):
    """A member with its state in a database.

    Attributes:
        life: of the process; the database has the last one.
        away: it never comes back.
        look: a silent member that it looks up, and the rows of it, if it has read them.
    """

    world: DatabaseWorld

    def __init__(self, world: World, client: str) -> None:
        self.database, self.away = HOMES[client], False
        super().__init__(world, client)
        self.begin_life()

    def start(self) -> None:
        super().start()
        self.look: tuple[MemberID, int] | None = None
        self.rows: tuple[frozenset[Position], frozenset[Position]] | None = None

    def begin_life(self) -> None:
        self.life = self.world.lives[self.client] = self.world.draw_number()

    def open(self) -> None:
        self.begin_life()
        super().open()

    def lose_power(self) -> None:
        self.crash()

    def check_life(self) -> None:
        if self.world.lives[self.client] != self.life:
            raise LifeEnded

    def load_again(self) -> None:
        """Continue as after a restart."""
        self.world.figures["lives ended"] += 1
        self.up = False
        self.open()

    def step(self) -> None:
        if self.up and self.look is not None and self.world.random.random() < 0.3:
            self.finish_look()
            return
        try:
            super().step()
        except LifeEnded:
            self.load_again()

    def begin(self, position: Position, shown: Shown) -> None:
        self.check_life()
        super().begin(position, shown)

    def commit(self, position: Position, shown: Shown) -> None:
        self.check_life()
        super().commit(position, shown)
        self.fsync()

    def work(self, want: int, *, early: bool, wait: bool = False) -> Work:
        self.sent = replace(super().work(want, early=early, wait=wait), database=self.database)
        return self.sent

    def receive(self, answer: Answer) -> None:
        try:
            super().receive(answer)
        except LifeEnded:
            self.load_again()

    def take(self, answer: Answer) -> None:
        if answer.silent is not None and self.look is None:
            self.begin_look(answer.silent)
        super().take(answer)
        if self.world.healthy and self.look is not None:
            self.finish_look()

    # Looking

    def begin_look(self, silent: tuple[MemberID, int]) -> None:
        self.look, self.rows = silent, None
        if self.world.rules["before"]:
            self.end_life(silent[0])
        else:
            self.rows = self.read(silent[0])

    def finish_look(self) -> None:
        assert self.look is not None
        silent, rows = self.look, self.rows
        if rows is None:
            rows = self.read(silent[0])
        else:
            self.end_life(silent[0])
        self.look = self.rows = None
        self.world.figures["looks"] += 1
        done, tried = rows
        settle = Settle(self.identity, self.process, self.subscription, silent, self.database, done, tried)
        self.world.send(settle, self)

    def end_life(self, other: MemberID) -> None:
        """Replace the life of another member, if it is in the own database."""
        if self.world.rules["ended"] and HOMES[other[0]] == self.database:
            self.world.lives[other[0]] = self.world.draw_number()

    def read(self, other: MemberID) -> tuple[frozenset[Position], frozenset[Position]]:
        """Return what is done, and what was begun, of another member in the own database."""
        found: Process = next(member for member in self.world.members if member.client == other[0])
        if HOMES[other[0]] != self.database or found.identity != other:
            return frozenset(), frozenset()
        return frozenset(found.hard), frozenset(found.tried if self.world.rules["attempts"] else ())

    # The end

    def settle(self) -> bool:
        if self.away:
            self.world.hear_no_more(self)
            self.held, self.offered = {}, {}
            return False
        try:
            return super().settle()
        except LifeEnded:
            self.load_again()
            return True


class DatabaseWorld(World):
    """One run with databases; arguments as of `World`.

    Attributes:
        lives: of each member, the last one that its database has.
    """

    holder_class = DatabaseHolder
    member_class = DatabaseMember

    def __init__(self, seed: int, rules: Rules, trace: bool = False) -> None:
        self.lives: dict[str, int] = {}
        super().__init__(seed, rules, trace)

    def _draw_kind(self) -> None:
        super()._draw_kind()
        self.disks = self.restoring = False
        self.staying_away = self.random.random() < 0.5

    def operate(self) -> None:
        """Let one thing happen at a server: mostly, it hears a member with claims no more."""
        server = self.random.choice(self.servers)
        holding = [key for key, row in server.live.members.items() if row.held] if server.live is not None else []
        if holding and self.random.random() < 0.6:
            server.silent(self.random.choice(holding))
        else:
            super().operate()

    def heal(self) -> None:
        """Let the first member stay away, in half of the runs."""
        first = self.members[0]
        assert isinstance(first, DatabaseMember)
        if self.staying_away:
            first.crash()
            first.away = True
            self.figures["away"] += 1
        super().heal()

    def check(self, topic: Topic) -> None:
        super().check(topic)
        for effect in self.effects:
            if effect.doubtful and (self.era(effect.subscription), effect.content) not in self.released:
                self.object_to("marked without a release", effect.content)
