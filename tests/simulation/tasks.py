"""Sinks and readers of ranges: the acts of a data pipeline on topics, without a client's state.

A sink writes numbered batches of rows, stages each under newly named attempts, and publishes it. If it is killed
meanwhile, it writes the batch again, with the rows in another order. A reader plans a range behind its records, reads
it, stores it together with its end, and acknowledges that. The memory of either outlives its process, as Spark's
checkpoint does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from json import loads
from typing import Any
from zlib import crc32

from pubsub.client.core.retries import Retries
from pubsub.errors import DecodeError
from pubsub.messenger.framing import pack, unpack
from pubsub.protocol import (
    RETRY,
    Outcome,
    Position,
    Publish,
    Read,
    Records,
    Settings,
    Stage,
    Status,
    decode,
    encode,
    encode_batch,
)
from pubsub.protocol.messages import Get, Subscribe
from pubsub.protocol.names import format_position, parse_position
from pubsub.protocol.topic_objects import Purge
from tests.simulation.history import ACKED, History, Put, Seen
from tests.simulation.nodes import proxy_addresses
from tests.simulation.world import EPOCH, Host, Process, World

READ_RECORDS = 7
PAUSE_SECONDS = 0.05
NUMBERS_FROM = 1_577_836_800
"""2020-01-01 in seconds since 1970."""

Then = Callable[[Status], None]


@dataclass
class _Asked:
    request: Any
    then: Then
    retries: Retries
    again_at: float = 0.0


class Task(Process):
    """A process that asks, and asks again until it is answered."""

    def __init__(self, world: World, host: Host, proxies: tuple[str, ...], history: History, topic: str) -> None:
        super().__init__(world, host)
        self.proxies = [proxy_addresses(name)[0] for name in proxies]
        self.history, self.topic = history, topic
        self.finishing = self.finished = False
        self.operations = 0
        self.log = ""
        self.patience = world.random.choice(((1, 0.02), (1, 0.1), (3, 0.1)))
        """Tries at one proxy before the next, and seconds of each in the first round."""

    def begin(self) -> None:
        self._peers = [self.world.network.connect(self, address, "", fifo=False) for address in self.proxies]
        self._asked: dict[int, _Asked] = {}
        self._token = 100
        self.finished = False
        self.world.at(self.world.now, self._step, self.life, self.go)

    def go(self) -> None:
        """The next thing to do."""
        raise NotImplementedError

    def _step(self, life: int, action: Callable[[], None]) -> None:
        if life == self.life and self.alive:
            if self.paused:
                self.world.after(0.05, self._step, life, action)
                return
            self._guarded(action)
            if self.alive:
                self.wake(self.world.now)

    def soon(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later in this life."""
        self.world.after(seconds, self._step, self.life, action)

    def ask(self, request: Any, then: Then) -> None:
        """Have a request answered by other than `retry`."""
        self.operations += 1
        self._send(_Asked(request, then, Retries(len(self._peers), *self.patience)))

    def _send(self, asked: _Asked) -> None:
        self._token += 1
        self._asked[self._token] = asked
        asked.again_at = self.host.monotonic() + asked.retries.patience
        asked.request.log = self.log
        head, body = encode(asked.request)
        frames = (pack(0, self._token, 0) + head, *([bytes(body)] if len(body) else []))
        self.world.network.to_router(self._peers[asked.retries.proxy], frames)

    def turn(self) -> None:
        batch, self.inbox = self.inbox, []
        for _, head, *frames in batch:
            prefix = unpack(head)
            asked = self._asked.get(prefix.destination)
            try:
                status = decode(head[prefix.length :], frames[0] if frames else None)
            except DecodeError:
                continue
            if asked is None or not isinstance(status, Status):
                continue
            absent = status.outcome is Outcome.UNKNOWN and isinstance(asked.request, Settings | Purge)
            if (
                status.outcome in RETRY - {Outcome.GAP} and not absent
            ):  # The asking program judges a gap, as Spark's link does.
                asked.again_at = min(asked.again_at, self.host.monotonic() + PAUSE_SECONDS)
                continue
            self._asked = {token: other for token, other in self._asked.items() if other is not asked}
            self.log = status.log or self.log
            asked.then(status)
        now = self.host.monotonic()
        newest = {id(asked): token for token, asked in sorted(self._asked.items())}
        for token, asked in list(self._asked.items()):
            if now >= asked.again_at and token == newest[id(asked)]:
                asked.retries.fail()
                self._send(asked)

    def deadline(self) -> float:
        if self.inbox:
            return float("-inf")
        newest = {id(asked): asked.again_at for asked in self._asked.values()}
        return min(newest.values(), default=float("inf"))

    def ended(self) -> None:
        self._asked.clear()


class Sink(Task):
    """Writes batches to a topic."""

    def __init__(self, world: World, host: Host, proxies: tuple[str, ...], history: History, topic: str) -> None:
        super().__init__(world, host, proxies, history, topic)
        self.publisher = f"{world.random.getrandbits(64):016x}"
        self.batch = 0
        self.rows: list[Put] = []

    def go(self) -> None:
        random = self.world.random
        if not self.rows:
            if self.finishing:
                self.finished = True
                return
            for row in range(random.choice((1, 3, 8))):
                body = f"{self.name}:{self.batch}:{row}"
                put = Put(body, (self.name, 0, "sink"), self.batch, self.topic, float("inf"))
                self.rows.append(self.history.put(put))
        self._attempts: dict[str, int] = {}
        bodies = [put.body.encode() for put in self.rows]
        random.shuffle(bodies)
        cut = random.randrange(len(bodies) + 1)
        self._parts = [part for part in (bodies[:cut], bodies[cut:]) if part]
        self._write_next()

    def _write_next(self) -> None:
        if not self._parts:
            self.soon(self.world.random.choice((0.0, 0.0, 0.3)) * self.world.random.random(), self._publish)
            return
        attempt = f"0.{self.world.random.getrandbits(128):032x}"
        rows = self._parts.pop()
        self._attempts[attempt] = len(rows)
        self._stage(attempt, 0, rows)

    def _stage(self, attempt: str, first: int, rows: list[bytes]) -> None:
        if not rows:
            self._write_next()
            return
        count = min(len(rows), self.world.random.choice((1, 4)))
        body = encode_batch(rows[:count])
        request = Stage(
            self.name, self.topic, self.batch, self.publisher, attempt, first, count, crc32(body), body=body
        )
        self.ask(request, partial(self._staged, request, rows[count:]))

    def _staged(self, request: Stage, rest: list[bytes], status: Status, *, again: bool = False) -> None:
        if status.outcome is Outcome.GAP and not again:
            self.ask(request, partial(self._staged, request, rest, again=True))
        elif status.outcome is Outcome.GAP:
            # The rows staged before were at a server that has lost or merged the topic since: Spark tries anew.
            self.soon(self.world.random.random(), self.go)
        elif status.outcome is Outcome.DUPLICATE:
            # The answering server may not be the publishing one, so the rest of this attempt counts, and so do all the
            # others.
            self._write_next()
        elif status.outcome is Outcome.SUCCESS:
            self._stage(request.attempt, request.first + request.count, rest)
        else:
            self.history.violate(f"{self.name} cannot stage batch {self.batch}: {status.outcome} {status.reason}")

    def _publish(self) -> None:
        for put in self.rows:
            put.invoked = min(put.invoked, self.world.now)
        request = Publish(self.name, self.topic, self.batch, self.publisher, dict(self._attempts))
        self.ask(request, self._published)

    def _published(self, status: Status) -> None:
        if status.outcome is Outcome.RESTAGE:
            self.go()
        elif status.outcome in {Outcome.SUCCESS, Outcome.DUPLICATE}:
            self.world.note(f"{self.name} published batch {self.batch}: {status.outcome}")
            for put in self.rows:
                put.state, put.acked_at = ACKED, self.world.now
            self.batch, self.rows = self.batch + 1, []
            self.soon(self.world.random.expovariate(1 / 0.2), self.go)
        else:
            self.history.violate(f"{self.name} cannot publish batch {self.batch}: {status.outcome} {status.reason}")

    def settled(self) -> str:
        """The open work, "" if there is none."""
        return "" if self.finished else f"{self.name} has not published batch {self.batch}"


class RangeReader(Task):
    """Reads a topic by ranges along a named subscription."""

    def __init__(self, world: World, host: Host, proxies: tuple[str, ...], history: History, topic: str) -> None:
        super().__init__(world, host, proxies, history, topic)
        self.start_at = world.random.choice(("earliest", "latest"))
        self.reading = history.reading(self.name, topic, by_get=False)
        self.done: Position | None = None
        self.range: tuple[Position | None, Position] | None = None
        self.empty = 0

    def go(self) -> None:
        if self.reading.confirmed is None:
            wall = int((self.host.wall() - NUMBERS_FROM) * 1000) << 22
            self.reading.wanted = True
            if self.reading.asked is None:
                self.reading.asked = self.world.now
            request = Subscribe(self.name, self.topic, wall, wall, name=self.name, start=self.start_at)
            self.ask(request, self._subscribed)
        elif self.range is None:
            self.ask(Read(self.name, self.topic, self.done, name=self.name), self._planned)
        else:
            self._got: list[Seen] = []
            self._read(self.range[0])

    def _subscribed(self, status: Status) -> None:
        if status.outcome is not Outcome.SUCCESS:
            self.history.violate(f"{self.name} cannot subscribe: {status.outcome} {status.reason}")
            return
        self.reading.confirmed = self.world.now
        self.done = status.position
        self.world.note(f"{self.name} reads {self.topic} from {format_position(self.done)} ({self.start_at})")
        self.go()

    def _refused(self, status: Status, what: str) -> None:
        self.history.violate(f"{self.name} cannot {what} {self.topic}: {status.outcome} {status.reason}")
        self.finished = True

    def _planned(self, status: Status) -> None:
        if status.outcome is not Outcome.SUCCESS:
            self._refused(status, f"plan behind {format_position(self.done)} in")
            return
        latest = parse_position(loads(bytes(status.body))["latest"])
        if latest is None or latest == self.done:
            self.empty += 1
            if self.finishing and self.empty > 2:
                self.finished = True
            self.soon(0.2 if self.finishing else self.world.random.expovariate(1 / 0.3), self.go)
            return
        self.empty = 0
        self.range = self.done, latest
        self.go()

    def _read(self, after: Position | None) -> None:
        assert self.range is not None
        request = Read(self.name, self.topic, after, self.range[1], self.name, READ_RECORDS)
        self.ask(request, self._received)

    def _received(self, status: Status) -> None:
        assert self.range is not None
        if status.outcome not in {Outcome.SUCCESS, Outcome.EMPTY} or status.message is None:
            self._refused(status, "read all of")
            return
        if status.outcome is Outcome.SUCCESS:
            records = Records(bytes(status.body))
            bodies = records.bodies()
            asked = 0.0 if self.start_at == "earliest" else self.reading.asked or 0.0
            for run in records.runs:
                for index, _ in enumerate(run.ends):
                    place = f"{run.log}.{run.offset + index}"
                    stamp = run.stamp / 1e6 - EPOCH
                    self._got.append(Seen(self.topic, next(bodies).decode(), place, stamp, asked))
        if status.message != self.range[1]:
            self._read(status.message)
            return
        self.operations += len(self._got)
        self.reading.parts[-1] += self._got
        self.world.note(f"{self.name} read {len(self._got)} of {self.topic}")
        self.done, self.range = self.range[1], None
        token = crc32(self.name.encode()) + 1  # Of its checkpoint: no other one acknowledges under this name.
        acknowledge = Get(self.name, self.topic, self.done, 0, token, records_max=0, name=self.name)
        if self.world.random.random() < 0.7:
            self.ask(acknowledge, self._acknowledged)
        else:
            self.go()

    def _acknowledged(self, status: Status) -> None:
        if status.outcome is not Outcome.EMPTY:
            self._refused(status, "acknowledge")
            return
        self.go()

    def settled(self) -> str:
        """The open work, "" if there is none."""
        return "" if self.finished else f"{self.name} has not read all of {self.topic}"
