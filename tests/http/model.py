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
from random import Random

from pubsub.errors import PubsubError, StorageError
from pubsub.http.core.answers import Answer
from pubsub.http.core.keys import IDEMPOTENCY_KEY
from pubsub.http.core.outgoing import Kind, Outgoing, State
from pubsub.http.storage import outbox
from tests.http.processes import KINDS, YEARS, Objection, Packet, ReceiverProcess, SenderProcess
from tests.simulation.disk import Killed, untidy


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
