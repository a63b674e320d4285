"""A sender and a receiver in one seeded world, over a network and disks that do everything wrong that they can.

What is driven is the code that ships, down to SQLite: `Sending`, `Receiving`, `Handling`'s handler calls, `Journal`. Of
the shells only what waits is replaced, by the steps of this file. The seed is the only input.

Faults: requests and responses are lost, late and doubled, and repeats of long ago come again when all is over; either
process is killed between any two steps and at any access of its disk; power is cut, and what was not synced is lost or
torn; disks fail once, or are full for a while; handlers raise; wall clocks are set, and machines are started anew with
them wrong. First all of that, then everything works, and everything that was asked for must come to its end.

What must hold: each handler's effect happened once where the sender was told of success, and never twice; every
response to a key is the same, and is the one that was committed with the effect; nothing is refused or expires; a
request is on the sender's disk before it is on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pubsub.errors import PubsubError, StorageError
from pubsub.http.core.answers import Answer, problem
from pubsub.http.core.incoming import Decision, Standing
from pubsub.http.core.keys import CONFIRM, FINISHED, IDEMPOTENCY_KEY, OUTCOME, RESPONSE_URL, read_finished, read_key
from pubsub.http.core.outgoing import Kind, Outgoing, State
from pubsub.http.handling import Handling
from pubsub.http.receiver import CONFIRMATIONS
from pubsub.http.receiving import Arrival, Receiving, reply
from pubsub.http.routes import Routes, as_request
from pubsub.http.sending import Draft, Sending
from pubsub.http.settings import HttpSettings
from pubsub.http.storage import outbox
from pubsub.http.storage.journal import Journal, OwnFile
from tests.simulation.disk import NAME, Disk, Killed, disks, untidy

SETTINGS = HttpSettings(handler_attempts=10_000, requests_per_host=8, backoff_seconds_max=20.0)
YEARS = 10 * 365 * 86_400.0
KINDS = (Kind.PUT, Kind.SEND, Kind.JOB)
URLS = {Kind.PUT: "http://r/put", Kind.SEND: "http://r/message", Kind.JOB: "http://r/job"}


class Objection(AssertionError):
    """What must not happen has happened."""


@dataclass
class Packet:
    """A request on its way, or the answer to one; `connection` 0: nobody reads the answer."""

    to: str
    connection: int
    method: str = ""
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    answer: Answer | None = None


class Host:
    """A machine: its disk and its clocks; a clock of `HttpClock`'s kind."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.disk = world, name, Disk()
        self.skew = 1.7e9
        self.boots, self.booted = 1, 0.0

    def uptime(self) -> float:
        return self.world.time - self.booted + 5.0

    def wall(self) -> float:
        return max(0.0, self.world.time + self.skew)

    def boot(self) -> str:
        return f"{self.name}-{self.boots}"

    def start_anew(self) -> None:
        self.boots += 1
        self.booted = self.world.time


class Process:
    """One of the two processes; `alive` between `begin` and `kill`."""

    name = ""

    def __init__(self, world: World) -> None:
        self.world, self.host, self.alive = world, Host(world, self.name), False
        disks().disks[self.name] = self.host.disk

    def begin(self) -> None:
        """Start, which a disk may prevent."""
        file = OwnFile(Path(f"/{self.name}"), self.host.boot(), vfs=NAME)
        self.journal = Journal(file, self.host, counts_boots=self.name == "sender")
        self.load()
        self.alive = True

    def load(self) -> None:
        raise NotImplementedError

    def sweep(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        self.host.disk.end_process()
        self.alive = False

    def random(self) -> Random:
        return Random(self.world.random.getrandbits(64))


class SenderProcess(Process):
    """The sender's shell in steps: a try is begun, and later answered or given up."""

    name = "sender"

    def load(self) -> None:
        self.sending = Sending(self.journal, SETTINGS, self.random())
        self.tries: dict[str, int] = {}

    def sweep(self) -> None:
        self.sending.sweep()

    def submit(self, kind: Kind, value: int) -> None:
        world = self.world
        body = f"v{value}".encode()
        world.asked[value] = kind
        listen = "http://s/results" if kind is Kind.JOB else ""
        self.sending.submit(Draft(kind, URLS[kind], {"x-value": str(value)}, body, "", listen))

    def turn(self) -> None:
        for name in self.sending.begin()[0]:
            request = self.sending.load(name)
            if request is None or (request.over and not request.confirm):
                self.sending.end(name)
                self.world.settled(request)
                continue
            connection = self.world.connect(self.name, name)
            self.tries[name] = connection
            if request.confirm:
                self.world.post(Packet("receiver", connection, "DELETE", request.confirm))
                continue
            self._must_be_stored(request)
            headers = self.sending.headers(request)
            self.world.post(Packet("receiver", connection, request.method, request.url, headers, request.body))

    def _must_be_stored(self, request: Outgoing) -> None:
        if self.world.stored_anew(request) is None:
            raise Objection(f"{request.id} is on the wire and not on the disk")

    def answered(self, name: str, answer: Answer | None) -> None:
        """An answer, or None: the connection came to nothing."""
        self.tries.pop(name, None)
        request = self.sending.find(name)
        if request is not None and request.confirm:
            self.sending.confirmed(name, success=answer is not None and answer.status < 500)
        elif answer is None:
            self.sending.failed(name, "cut")
        else:
            self.world.settled(self.sending.answered(name, answer))
        self.sending.end(name)

    def take(self, packet: Packet) -> Answer:
        """The Response URL's node."""
        name = unquote(urlsplit(packet.url).path.rpartition("/")[2])
        failed = packet.headers.get(OUTCOME) == "failed"
        try:
            with self.journal.transaction() as transaction:
                if not self.sending.known_job(transaction, name):
                    return problem(404, "no such job")
                answer = Answer(500 if failed else 200, {}, packet.body)
                before, after = self.sending.result(transaction, name, answer, failed=failed)
            self.sending.settled(before, after)
        except StorageError:
            return problem(503, "disk")
        self.world.settled(after)
        return Answer(204)


class ReceiverProcess(Process):
    """The receiver's shell in steps: a request is stored, its handler begins, works, and ends."""

    name = "receiver"

    def load(self) -> None:
        with self.journal.transaction() as transaction:
            transaction.execute("create table if not exists effects (key text, value text, token text)")
        self.sending = Sending(self.journal, SETTINGS, self.random())
        self.receiving = Receiving(self.journal, SETTINGS, self.random(), self.sending)
        routes = Routes()
        for kind in KINDS:
            routes.add(kind, "/{path:path}", self.handler)
        unused: Any = None
        self.handling = Handling(self.receiving, self.sending, routes, SETTINGS, unused, lambda: None)
        self.waiting: dict[tuple[str, str], list[int]] = {}
        self.working: list[tuple[str, str]] = []
        self.tries: dict[str, int] = {}

    def sweep(self) -> None:
        self.sending.sweep()
        self.receiving.sweep()

    def handler(self, request: Any, transaction: Any) -> str:
        value = request.body.decode()
        token = f"{value}:{self.world.random.getrandbits(64):x}"
        transaction.execute("insert into effects values (?, ?, ?)", (request.key, value, token))
        if self.world.chance(0.1):
            raise ValueError("the handler does not feel like it")
        return token

    def take(self, packet: Packet) -> Answer | None:
        """A request; None where its answer comes later."""
        path = urlsplit(packet.url).path
        try:
            if packet.method == "DELETE":
                known = self.receiving.confirm("", unquote(path.removeprefix(CONFIRMATIONS)))
                return Answer(204 if known else 404)
            kind = Kind(path.strip("/").replace("message", "send"))
            key = read_key([packet.headers[IDEMPOTENCY_KEY]])
            finished = read_finished(packet.headers.get(FINISHED))
            asked = packet.headers.get(RESPONSE_URL, "")
            arrival = Arrival("", key, kind, packet.method, path, "", {}, packet.body, asked, finished)
            decision, found = self.receiving.arrive(arrival)
        except StorageError:
            return problem(503, "disk")
        answer = reply(decision, found)
        if answer is None:
            self.waiting.setdefault(("", key), []).append(packet.connection)
        elif decision is Decision.REPEAT and answer.status == 200:
            answer = Answer(200, {**answer.headers, CONFIRM: CONFIRMATIONS + quote(key, safe="")}, answer.body)
        return answer

    def turn(self) -> None:
        """Begin handlers, and one in three of those that work comes to its end."""
        self.working += self.receiving.begin()[0]
        for name in [name for name in self.working if self.world.calm or self.world.chance(0.3)]:
            self.working.remove(name)
            try:
                self._work(name)
            except StorageError:
                self.receiving.later(name)
                self._tell(name, problem(503, "disk"))
            self.receiving.end(name)
        for name in self.sending.begin()[0]:
            self._try(name)

    def _work(self, name: tuple[str, str]) -> None:
        request = self.receiving.find(*name)
        if request is None or request.standing is not Standing.RECEIVED:
            return
        try:
            queued = self.handling._on_thread(name, self.handler, as_request(request, {}))
        except Exception as error:  # noqa: BLE001
            self.receiving.failed(name, str(error), counts=not isinstance(error, StorageError))
            self._tell(name, problem(500, "failed"))
            return
        self.receiving.committed(request, queued)
        found = self.receiving.find(*name)
        if found is not None and found.answer is not None:
            self._tell(name, found.answer)

    def _tell(self, name: tuple[str, str], answer: Answer) -> None:
        for connection in self.waiting.pop(name, []):
            self.world.answer("sender", connection, answer)

    def _try(self, name: str) -> None:
        request = self.sending.load(name)
        if request is None or request.over:
            self.sending.end(name)
            return
        connection = self.world.connect(self.name, name)
        self.tries[name] = connection
        headers = self.sending.headers(request)
        self.world.post(Packet("sender", connection, request.method, request.url, headers, request.body))

    def answered(self, name: str, answer: Answer | None) -> None:
        self.tries.pop(name, None)
        after = self.sending.failed(name, "cut") if answer is None else self.sending.answered(name, answer)
        if after is not None and after.state is State.REFUSED and not self.world.excused:
            raise Objection(f"the result of {after.url} was refused: {after.problem}")
        self.sending.end(name)


class World:
    """All of it.

    Args:
        seed: the only input.

    Attributes:
        asked: value -> kind, of all that was asked for, stored or not.
        done: value -> the answer that the sender was told.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.time = Random(seed), 1000.0
        self.asked: dict[int, Kind] = {}
        self.done: dict[int, Answer] = {}
        self.wire: list[Packet] = []
        self.past: list[Packet] = []
        self.answers: dict[str, bytes] = {}
        self.connections: dict[int, tuple[str, str]] = {}
        self.excused = False
        """The sender's machine was started anew, perhaps with a wrong clock: requests and tombstones may expire."""
        self.sender, self.receiver = SenderProcess(self), ReceiverProcess(self)
        self.processes: list[SenderProcess | ReceiverProcess] = [self.sender, self.receiver]
        self.calm = False
        self.happened: dict[str, int] = {}

    def chance(self, probability: float) -> bool:
        return not self.calm and self.random.random() < probability

    def count(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1

    # Network

    def connect(self, who: str, name: str) -> int:
        number = len(self.connections) + 1
        self.connections[number] = who, name
        return number

    def post(self, packet: Packet) -> None:
        self.wire.append(packet)
        self.past.append(packet)

    def answer(self, to: str, connection: int, answer: Answer) -> None:
        self.wire.append(Packet(to, connection, answer=answer))

    def process(self, name: str) -> SenderProcess | ReceiverProcess:
        return self.sender if name == "sender" else self.receiver

    def deliver(self) -> None:
        if not self.wire:
            return
        packet = self.wire.pop(0 if self.calm else self.random.randrange(len(self.wire)))
        if self.chance(0.15):
            self.count("lost")
            return
        if self.chance(0.1):
            self.count("doubled")
            self.wire.append(Packet(packet.to, 0, packet.method, packet.url, packet.headers, packet.body))
        to = self.process(packet.to)
        if not to.alive:
            return
        if packet.answer is None:
            if not packet.method:
                return
            answer = to.take(packet)
            back = "sender" if packet.to == "receiver" else "receiver"
            if answer is not None:
                self.answer(back, packet.connection, answer)
                self._same(packet, answer)
            return
        who, name = self.connections.get(packet.connection, ("", ""))
        if who == packet.to and to.tries.get(name) == packet.connection:
            to.answered(name, packet.answer)

    def _same(self, packet: Packet, answer: Answer) -> None:
        """Every success of a key is answered alike."""
        if packet.method == "PUT" and answer.status == 200:
            key = packet.headers[IDEMPOTENCY_KEY]
            if self.answers.setdefault(key, answer.body) != answer.body:
                raise Objection(f"{key} was answered {self.answers[key]!r}, and then {answer.body!r}")

    def give_up(self) -> None:
        """A connection that nobody answers comes to nothing."""
        for process in self.processes:
            if process.alive and process.tries:
                name = self.random.choice(sorted(process.tries))
                process.answered(name, None)

    # What is known

    def stored_anew(self, request: Outgoing) -> Outgoing | None:
        return self.sender.sending.find(request.id)

    def settled(self, request: Outgoing | None) -> None:
        """The sender's caller is told."""
        if request is None or not request.over:
            return
        value = int(request.headers["x-value"])
        if request.state is State.EXPIRED and self.excused:
            return
        if request.state is not State.DONE or request.answer is None:
            raise Objection(f"value {value}: {request.kind} is {request.state}: {request.problem}")
        self.done[value] = request.answer

    # Faults

    def strike(self) -> None:
        process = self.random.choice(self.processes)
        disk = process.host.disk
        match self.random.randrange(9):
            case 0:
                self.count("killed")
                process.kill()
            case 1 | 2:
                disk.kill_in = self.random.randrange(40)
            case 3:
                self.count("power cut")
                process.kill()
                disk.cut_power(self.random)
            case 4:
                disk.fail_in = self.random.randrange(40)
            case 5:
                disk.full = not disk.full
            case 6:
                self.count("clock set")
                process.host.skew += self.random.choice((-YEARS, -3600.0, 3600.0, YEARS))
            case 7:
                self.count("started anew")
                process.kill()
                process.host.start_anew()
                if process is self.sender:
                    self.excused = True
            case 8:
                self.time += self.random.choice((30.0, 3600.0))

    def guard(self, process: SenderProcess | ReceiverProcess, step: Callable[[], None]) -> None:
        """One step of a process, which may be its last."""
        try:
            step()
        except Killed:
            self.count("killed at its disk")
            process.alive = False
        except (PubsubError, OSError) as error:
            self.count(type(error).__name__)
            if not isinstance(error, StorageError) or self.calm:
                raise
            if not process.alive or self.random.random() < 0.5:
                process.kill()

    def step(self) -> None:
        self.time += self.random.random() * 0.5
        if self.random.random() < 0.02:
            for process in self.processes:
                if process.alive:
                    self.guard(process, process.sweep)
        for process in self.processes:
            if not process.alive:
                if self.calm or self.chance(0.3):
                    self.guard(process, process.begin)
                continue
            self.guard(process, process.turn)
        process = self.random.choice(self.processes)
        for packet_step in (self.deliver, self.deliver):
            to = self.process(self.wire[0].to) if self.wire else process
            self._deliver(packet_step, to)
        if self.chance(0.1):
            self.give_up_guarded()

    def _deliver(self, step: Callable[[], None], fallback: SenderProcess | ReceiverProcess) -> None:
        before = {process: process.host.disk.epoch for process in self.processes}
        try:
            step()
        except Killed:
            self.count("killed at its disk")
            for process in self.processes:
                if process.host.disk.epoch != before[process]:
                    process.alive = False
        except StorageError:
            self.count("StorageError")
            for process in self.processes:  # What it was about is not known any more: as if it had ended.
                if process.host.disk.troubled:
                    process.kill()

    def give_up_guarded(self) -> None:
        self._deliver(self.give_up, self.sender)

    # A run

    def run(self, steps: int = 250, requests: int = 14) -> None:
        """Faults, then none, then what must hold.

        Raises:
            Objection: it does not.
        """
        asked = 0
        for _ in range(steps):
            self.step()
            if asked < requests and self.sender.alive and self.random.random() < 0.2:
                value, asked = asked, asked + 1
                kind = self.random.choice(KINDS)
                self.guard(self.sender, lambda kind=kind, value=value: self.sender.submit(kind, value))
            if self.random.random() < 0.08:
                self.strike()
            if self.past and self.random.random() < 0.05:
                again = self.random.choice(self.past)
                self.wire.append(Packet(again.to, 0, again.method, again.url, again.headers, again.body))
        self.finish()
        self.replay()
        self.check()

    def finish(self) -> None:
        """Nothing goes wrong any more, and all comes to its end."""
        self.calm = True
        self.wire.clear()
        for process in self.processes:
            disk = process.host.disk
            process.kill()
            disk.full, disk.kill_in, disk.fail_in, disk.refusals = False, None, None, 0
            process.begin()
        for _ in range(4000):
            self.step()
            if not self.wire:
                self.give_up_guarded()
            if self.settled_all():
                return
            self.time += 1.0
        raise Objection(f"not settled in the end: {self.open_requests()}")

    def settled_all(self) -> bool:
        return not self.open_requests() and not self.receiver.receiving.schedule and not self.receiver.working

    def open_requests(self) -> list[str]:
        with self.sender.journal.transaction() as transaction:
            names = [request.id for request in outbox.every(transaction, open_only=True)]
        with self.receiver.journal.transaction() as transaction:
            return [*names, *[request.id for request in outbox.every(transaction, open_only=True)]]

    def replay(self) -> None:
        """All requests that ever were come once more, long after, in any order."""
        self.time += 100.0
        past = [packet for packet in self.past if packet.to == "receiver"]
        self.random.shuffle(past)
        for packet in past:
            again = Packet(packet.to, 0, packet.method, packet.url, packet.headers, packet.body)
            answer = self.receiver.take(again)
            if answer is not None:
                self._same(again, answer)
            for _ in range(8):
                self.receiver.turn()
        self.wire.clear()

    def check(self) -> None:
        """What must hold in the end."""
        with self.receiver.journal.transaction() as transaction:
            rows = list(transaction.execute("select key, value, token from effects"))
        with self.sender.journal.transaction() as transaction:
            requests = outbox.every(transaction, open_only=False)
        tokens: dict[int, list[str]] = {}
        for _, value, token in rows:
            tokens.setdefault(int(value[1:]), []).append(token)
        for value, found in sorted(tokens.items()):
            if len(found) != 1:
                raise Objection(f"value {value} happened {len(found)} times")
        for request in requests:
            self.settled(request)
        for value, answer in sorted(self.done.items()):
            kind = self.asked[value]
            if value not in tokens:
                raise Objection(f"value {value}, a {kind}, was told as done, and never happened")
            if kind is not Kind.SEND and answer.body.decode() != tokens[value][0]:
                raise Objection(f"value {value}: {answer.body!r} was told, and {tokens[value]} happened")
        for request in requests:
            if int(request.headers["x-value"]) not in self.done and not self.excused:
                raise Objection(f"{request.id} is on the disk, and nobody was told what became of it")


def simulate(seed: int, steps: int = 250, requests: int = 14) -> World:
    """One world to its end.

    Raises:
        Objection: what must hold does not.
    """
    with untidy():
        world = World(seed)
        world.run(steps, requests)
        return world
