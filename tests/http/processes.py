"""The sender and the receiver of the model, and the machines that they run on: the shells, in steps (see `model`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from pubsub.errors import StorageError
from pubsub.http.core.answers import Answer, problem
from pubsub.http.core.incoming import Decision, Standing
from pubsub.http.core.keys import CONFIRM, FINISHED, IDEMPOTENCY_KEY, OUTCOME, RESPONSE_URL, read_finished
from pubsub.http.core.outgoing import Kind, Outgoing, State
from pubsub.http.handling import Handling
from pubsub.http.receiver import CONFIRMATIONS
from pubsub.http.receiving import Arrival, Receiving, reply
from pubsub.http.routes import Routes, as_request
from pubsub.http.sending import Draft, Sending
from pubsub.http.settings import HttpSettings
from pubsub.http.storage.journal import Journal, OwnFile
from pubsub.web.idempotency import read_key
from tests.simulation.disk import NAME, Disk, disks

if TYPE_CHECKING:
    from tests.http.model import World

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
            key = read_key(packet.headers[IDEMPOTENCY_KEY])
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
