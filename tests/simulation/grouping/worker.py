"""Members of consumer groups: the shipped client, with handlers that are tasks, and the application's table of effects.

A handler inserts the message into the member's own table, in the transaction that ends the message. It may wait before
that, fail, put the message off, reject it, or be the end of its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import apsw

from pubsub.client.core.group_request import Wish
from pubsub.client.core.message import Message
from pubsub.client.core.outcomes import Later, Reject
from pubsub.client.errors import GroupEnded, GroupFull, GroupSuspended
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.flows.group_processing import GroupProcessing
from pubsub.client.flows.worker_pool_tasks import in_tasks
from pubsub.errors import (
    DataLoss,
    InDoubt,
    Interrupted,
    NotSubscribed,
    PubsubError,
    StorageError,
    Superseded,
    Unavailable,
)
from tests.simulation.clients import ClientNode, HandlerError
from tests.simulation.database.plan import shared_database
from tests.simulation.disk import NAME, Killed
from tests.simulation.grouping.plan import Plan, is_poison
from tests.simulation.grouping.record import Crew, Crews, Effect
from tests.simulation.grouping.tasks_loop import TaskLoop
from tests.simulation.world import Host, World

BLOCK_SECONDS_MAX = 20.0
"""Longest wait of a blocked thread."""

KILLED_LAST_MAX = 8
"""Processes that messages of one group may kill without faults, because each takes seconds to start again."""

TOLD_SECONDS_MAX = 0.02
"""Longest time from a request that tells something as done to a power cut, less than to the next fsync."""

FINISHING_SECONDS_MAX = 0.005
"""Longest handler without faults, so that members handle the thousands of messages of a busy run within its end."""

IN_HANDLER, CLAIMED, COMMITTED = "in the handler", "between claim and commit", "between commit and done"


class Membership:
    """One group of a worker.

    Attributes:
        joined: it was answered in this life of the directory, and the group was not ended since.
        empty: number of calls in a row that found nothing.
        calling: a call is under way.
    """

    def __init__(self, crew: Crew) -> None:
        self.crew, self.plan = crew, crew.plan
        self.joined = self.calling = False
        self.empty = 0


class Worker(ClientNode):
    """A client that is a member of some groups.

    Attributes:
        kill_at: the place where its process is to be killed; "": nowhere.
        when_told: called with it, soon after it has told something as done; None: nothing is.
        finishing: its handlers fail no more.
        away: it is not started.
        stores: store IDs that it had.
    """

    def __init__(self, world: World, host: Host, proxies: tuple[str, ...], crews: Crews, plans: list[Plan]) -> None:
        database = shared_database(world.fate, host.name)
        super().__init__(world, host, proxies, power_safe=False, database=database)
        self.crews, self.history = crews, crews.history
        self.memberships = [Membership(crews.of(plan.topic, plan.name)) for plan in plans]
        self.kill_at = ""
        self.when_told: Callable[[Worker], None] | None = None
        self.finishing = self.away = False
        self.directory = 0
        self.blocked = False
        self.on_start = self._started
        self._waits: list[tuple[Wait, asyncio.Future[bool]]] = []
        self._sleeps: list[tuple[float, asyncio.Future[None]]] = []
        self._graves: list[TaskLoop] = []
        self.tasks = TaskLoop(lambda: True)

    # Its process

    def start(self) -> None:
        if not self.away:
            super().start()

    def begin(self) -> None:
        self._graves.append(self.tasks)  # Nothing of a dead process may run before the end.
        epoch = self.host.disk.epoch
        self.tasks = TaskLoop(lambda: self.host.disk.epoch == epoch)
        self._waits, self._sleeps, self.kill_at = [], [], ""
        super().begin()

    def _started(self) -> None:
        self.make_table("effects", "topic, crew, body, id, attempts, doubtful, turn, number")
        known = self.session.core.members
        for membership in self.memberships:
            member = known.get(membership.crew.key)
            membership.joined = member is not None and member.number > 0
            membership.calling, membership.empty = False, 0
            self.later(self.world.random.random() * 0.2, partial(self._step, membership))

    @property
    def is_unwinding(self) -> bool:
        return self.host.disk.epoch != self._epoch

    def mend(self) -> None:
        """End the process if its database may differ from its memory: another one begins with the database's state."""
        if self.database and self.session.unusable:
            self._killed("as it has lost its life")

    def lose_power(self) -> None:
        """Its host is off: a message that `get` returned lately may come again."""
        for membership in self.memberships:
            membership.crew.cut_gets |= membership.plan.gets
            membership.crew.untold += 1
        super().lose_power()

    def bury(self) -> None:
        """End the open work of all its lives."""
        for loop in (*self._graves, self.tasks):
            loop.close()

    def act(self, action: Callable[[], None]) -> None:
        if self.blocked:
            self.later(0.01, action)
        else:
            super().act(action)

    def _turn(self, life: int, when: float) -> None:
        if self.blocked:
            self._wake_at = float("inf")
        else:
            super()._turn(life, when)

    def turn(self) -> None:
        super().turn()
        self._run_tasks()
        if self.when_told is not None and self.alive and not self.is_unwinding:
            sent = [member.sent for member in self.session.core.members.values()]
            if any(one is not None and one.work.say.done for one in sent):
                self.world.after(TOLD_SECONDS_MAX * self.world.random.random(), self.when_told, self)
                self.when_told = None

    def _run_tasks(self) -> None:
        while True:
            now = self.host.monotonic()
            for sleep in [one for one in self._sleeps if one[0] <= now]:
                self._sleeps.remove(sleep)
                if not sleep[1].done():
                    sleep[1].set_result(None)
            for wait, future in list(self._waits):
                if future.done():
                    self._waits.remove((wait, future))
                elif (answer := wait.done()) or now >= wait.deadline:
                    self._waits.remove((wait, future))
                    future.set_result(answer)
            if not self.tasks.run_ready():
                return

    def deadline(self) -> float:
        times = [wait.deadline for wait, _ in self._waits] + [when for when, _ in self._sleeps]
        return min([super().deadline(), *times])

    def block(self, done: Callable[[], bool], deadline: float) -> bool:
        """Wait on the process's only thread; meanwhile the others go on. One process at a time can be blocked."""
        if done() or self.crews.blocked or not self.alive:
            return done()
        epoch, loop = self.host.disk.epoch, asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        self.blocked = self.crews.blocked = True
        until = self.world.now + min(BLOCK_SECONDS_MAX, max(0.0, deadline - self.host.monotonic()))
        try:
            while not done() or self.paused:
                due = self.due() - self.host.base  # Calls that wait go on after this one.
                self.world.step(max(self.world.now, min(until, due)) if not self.paused else self.world.now + 0.05)
                if self.host.disk.epoch != epoch:
                    raise Killed
                if self.paused:
                    continue
                self.drive()
                if self.host.disk.epoch != epoch:
                    raise Killed
                if self.world.now >= until:
                    break
        finally:
            self.blocked = self.crews.blocked = False
            asyncio._set_running_loop(loop)
        return done()

    # Its application

    def _again(self, membership: Membership, seconds: float | None = None) -> None:
        membership.calling = False
        think = self.world.random.random() * self.world.fate.think if seconds is None else seconds
        self.later(think, partial(self._step, membership))

    def _step(self, membership: Membership) -> None:
        if membership.calling:
            return
        membership.calling = True
        random, plan = self.world.random, membership.plan
        if not membership.joined:
            flow = self.calls.group_waits.subscribe(plan.topic, plan.name, self._wish(membership.crew), 1.0)
            self.call(flow, partial(self._confirmed, membership))
        elif random.random() < 0.03 and not self.finishing:
            flow = self.calls.group_waits.leave(plan.topic, plan.name, 1.0)
            self.call(flow, partial(self._left, membership))
        elif plan.gets and self.name in {"g1", "g2"}:
            most, timeout = random.choice((1, 5)), random.choice((0.1, 0.5))
            membership.crew.lost_gets += 5
            self.call(
                self.calls.group_gets.get_many(plan.topic, plan.name, most, timeout), partial(self._got, membership)
            )
        else:
            self.tasks.create_task(self._process(membership))
            self._run_tasks()

    def _wish(self, crew: Crew) -> Wish:
        """Of a joining member; the maker names all values, also of a group made anew, or unknown to a copy."""
        named = crew.made is None or crew.ended or crew.resumed or self.world.random.random() < 0.7
        if named:
            return crew.plan.wish
        crew.unnamed.add(self.name)
        return Wish()

    def _confirmed(self, membership: Membership, result: Any, error: Exception | None) -> None:
        membership.crew.unnamed.discard(self.name)
        if error is None:
            membership.joined = True
            crew = membership.crew
            crew.answered = self.world.now if crew.answered is None else crew.answered
            number = self.session.core.members[crew.key].number
            if number > crew.number:  # An answer under way says nothing about the group that is made after an end.
                crew.number, crew.made = number, self.world.now
        self._failed(membership, error)
        self._again(membership)

    def _left(self, membership: Membership, result: Any, error: Exception | None) -> None:
        self._failed(membership, error)
        self._again(membership, self.world.random.choice((0.0, 0.5)))

    def _got(self, membership: Membership, result: Any, error: Exception | None) -> None:
        if not (self.database and isinstance(error, StorageError)):  # Otherwise it may have taken some.
            membership.crew.lost_gets -= 5
        for one in result or ():
            marks = one.attempts, one.doubtful, self.crews.next_turn(), one.id
            membership.crew.effects.append(Effect(one.body.decode(), self.name, "get", *marks))
        self._ended(membership, len(result or ()), error)

    async def _process(self, membership: Membership) -> None:
        plan, calls, random = membership.plan, self.calls, self.world.random
        error: Exception | None = None
        taken = 0
        claim = "before" if plan.before or random.random() < 0.2 else "auto"
        concurrency = random.choice((1, plan.concurrency))
        most, timeout = random.choice((1, 5, 50)), random.choice((0.1, 0.5, 1.0))
        try:
            member = calls.group_waits.member_of(plan.topic, plan.name)
            source = GroupProcessing(calls.group_waits, member, most, concurrency, claim)  # Claims as threads do.
            self._watch_commits(source)
            handler = partial(self._handle, membership)
            taken = await in_tasks(
                self.session, source, handler, timeout, most, concurrency, self._run, self._breathe
            )  # fmt: skip
        except (PubsubError, HandlerError, apsw.Error) as raised:
            error = raised
        self._ended(membership, taken, error)

    def _watch_commits(self, source: Any) -> None:
        handled = source.handled

        def seen(attempt: Any) -> None:
            handled(attempt)
            self._maybe_killed(COMMITTED)

        source.handled = seen

    async def _run(self, flow: Flow[Any]) -> Any:
        self.operations += 1
        try:
            wait = next(flow)
            while True:
                if not (answer := wait.done()) and self.host.monotonic() < wait.deadline:
                    future = self.tasks.create_future()
                    self._waits.append((wait, future))
                    self.wake(self.world.now)
                    answer = await future
                wait = flow.send(answer)
        except StopIteration as stop:
            return stop.value

    async def _breathe(self) -> None:
        await self._sleep(0.0)

    async def _sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = self.tasks.create_future()
        self._sleeps.append((self.host.monotonic() + seconds, future))
        await future

    def _maybe_killed(self, place: str) -> None:
        if self.kill_at == place and not self.world.over:
            self._killed(place)

    def _killed(self, place: str) -> None:
        self.kill_at = ""
        self.world.note(f"{self.name} is killed {place}")
        self.host.disk.end_process()
        raise Killed

    async def _handle(self, membership: Membership, message: Message, transaction: Any) -> None:
        crew, plan, random = membership.crew, membership.plan, self.world.random
        body = message.body.decode()
        first = message.attempts == 1 and not message.doubtful
        if plan.before and first and body in crew.begun and not crew.ended:
            self.history.violate(f"{self.name} begins {body} in group {plan.name} as never begun before")
        crew.begun.add(body)
        self.crews.counters[f"group handlers begun{' again' if message.attempts > 1 else ''}"] += 1
        self.crews.counters["group messages with a doubt"] += message.doubtful
        self._maybe_killed(IN_HANDLER)
        if is_poison(plan, body) and crew.killed_last < KILLED_LAST_MAX:
            self._killed_by(message, crew)
        if random.random() < 0.4:
            pause = random.choice((0.005, 0.05, 0.05, 1.0)) * random.random()
            await self._sleep(min(pause, FINISHING_SECONDS_MAX) if self.finishing else pause)
        if not self.finishing and random.random() < plan.fails:
            how = random.choice(("later", "reject", "error", "error"))
            if how == "later":
                raise Later(random.choice((0.1, 1.0)))
            raise Reject("no use") if how == "reject" else HandlerError("on purpose")
        number = transaction.execute("select count(*) from effects").get
        self._maybe_killed(CLAIMED)
        _insert(transaction, plan, message, self.crews.next_turn(), number)

    def _killed_by(self, message: Message, crew: Crew) -> None:
        """A message kills the process."""
        self.crews.counters["group handlers killed by a message"] += 1
        if found := crew.killed(message.body.decode(), message.id, last=self.finishing):
            self.history.violate(found)
        self._killed(IN_HANDLER)

    # Errors

    def _ended(self, membership: Membership, taken: int, error: Exception | None) -> None:
        if self.is_unwinding:
            return
        nothing = error is None and not taken
        membership.empty = membership.empty + 1 if nothing else 0
        self._failed(membership, error)
        self.wake(self.world.now)
        self._again(membership)

    def _failed(self, membership: Membership, error: Exception | None) -> None:
        crew = membership.crew
        if error is None or isinstance(error, Unavailable | GroupSuspended | HandlerError | InDoubt | GroupFull):
            return
        if isinstance(error, GroupEnded | NotSubscribed) and (crew.ended or crew.resumed):
            crew.ended += not crew.ended  # It was made after the copy of the store, and is another one now.
            membership.joined = False
        elif isinstance(error, Superseded) and self.directory:
            membership.joined = False
        elif (isinstance(error, DataLoss) and crew.resumed) or (self.database and isinstance(error, Interrupted)):
            return
        elif not (isinstance(error, StorageError | apsw.Error) and self.explains(error)):
            self.history.violate(f"{self.name}, group {crew.plan.name}: {type(error).__name__}: {error}")

    # Its directory and its rows

    def lose_directory(self) -> None:
        """Its disk is gone; the rows of its table count as done."""
        self.collect(lost=True)
        for membership in self.memberships:
            membership.crew.lost_stores.add((self.name, self.store_id))
            membership.crew.untold += 1
            membership.joined = False
        self.directory += 1
        self.host.disk.restore({})

    @property
    def store_id(self) -> str:
        """Its store ID, of its last life."""
        return str(self.session.core.publisher)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of its table."""
        if self.database:
            return self.world.databases.rows_of(self, "effects", _SELECT) if self.life else []
        return list(self.session.store.db.execute(_SELECT)) if self.alive else _rows_at_rest(self)

    def effects(self) -> list[tuple[tuple[str, str], Effect]]:
        """The effects in its table, each with its group."""
        return [
            ((topic, crew), Effect(body, self.name, self.store_id, attempts, bool(doubtful), turn, id_))
            for topic, crew, body, id_, attempts, doubtful, turn in self.rows()
        ]

    def collect(self, *, lost: bool) -> None:
        """Keep the rows of its table."""
        for key, effect in self.effects():
            self.crews.of(*key).effects.append(effect)


_SELECT = "select topic, crew, body, id, attempts, doubtful, turn from effects order by n"


def _rows_at_rest(worker: Worker) -> list[tuple[Any, ...]]:
    path = f"/{worker.name}/{worker.client}.db"
    if path not in worker.host.disk.files:
        return []
    db = apsw.Connection(path, vfs=NAME)
    db.pragma("locking_mode", "exclusive")
    try:
        there = list(db.execute("select 1 from sqlite_schema where name = 'effects'"))
        return list(db.execute(_SELECT)) if there else []
    finally:
        db.close()


def _insert(transaction: Any, plan: Plan, message: Message, turn: int, number: int) -> None:
    transaction.execute(
        "insert into effects (topic, crew, body, id, attempts, doubtful, turn, number) values (?, ?, ?, ?, ?, ?, ?, ?)",
        (plan.topic, plan.name, message.body.decode(), message.id, message.attempts, message.doubtful, turn, number),
    )
