"""A real receiver on uvicorn and a real sender, with relays between, killed and started again; and the count."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults import forkserver
from tests.faults.http_dying import VARIABLE
from tests.faults.http_sender import kind_of
from tests.faults.relay import UP, Pair, Relay
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
READY_SECONDS = 120.0


class RepeatingRelay(Relay):
    """A relay that keeps the bytes of each connection to its target, and can repeat them all on a new connection."""

    def __init__(self, target: str) -> None:
        self._kept: dict[int, bytearray] = {}
        super().__init__(target)

    def _count(self, pair: Pair, way: str, chunk: bytes) -> None:
        super()._count(pair, way, chunk)
        if way == UP:
            self._kept.setdefault(id(pair), bytearray()).extend(chunk)

    def repeat(self, connections: int) -> int:
        """Repeat the bytes that went up the last so many connections; return their number."""
        sent = 0
        for kept in list(self._kept.values())[-connections:]:
            with contextlib.suppress(OSError), socket.create_connection(self._target, timeout=2.0) as one:
                one.sendall(bytes(kept))
                one.shutdown(socket.SHUT_WR)
                one.settimeout(0.2)
                while one.recv(65_536):
                    pass
                sent += len(kept)
        return sent


class Running:
    """A program that is started again whenever it has died."""

    def __init__(self, module: str, words: list[str], log: Path) -> None:
        self._module, self._words, self._log = module, words, log
        self.process: subprocess.Popen[bytes] | forkserver.Child | None = None
        self.deaths = 0

    def start(self, die: str = "") -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: die}
        command = ["-m", self._module, *self._words]
        with self._log.open("ab") as log:
            if (server := forkserver.current()) is not None and server.takes(command):
                self.process = server.start(command, environment, log.fileno(), log.fileno())
            else:
                self.process = subprocess.Popen(
                    [sys.executable, *command], cwd=ROOT, env=environment, stdout=log, stderr=log
                )

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def look(self) -> int | None:
        """Start it again where it was killed; its exit code where it has ended by itself."""
        assert self.process is not None
        code = self.process.poll()
        if code is None:
            return None
        if code == -signal.SIGKILL:
            self.deaths += 1
            self.start()
            return None
        return code


class Rig:
    """Both programs; a context manager that ends them.

    Args:
        directory: for all files.
        count: values that are asked for; at_once: so many at one time.
        job_seconds: the work of a job.
    """

    def __init__(self, directory: Path, count: int, at_once: int = 4, job_seconds: float = 0.05) -> None:
        self.directory, self.count = directory, count
        port, local = free_port(), free_port()
        self.up, self.back = RepeatingRelay(f"tcp://127.0.0.1:{port}"), RepeatingRelay(f"tcp://127.0.0.1:{local}")
        self.record = directory / "record.jsonl"
        self.log = directory / "log"
        words = [str(directory / "receiver"), str(port), str(job_seconds)]
        self.receiver = Running("tests.faults.http_receiver", words, self.log)
        base, results = (one.endpoint.replace("tcp:", "http:") for one in (self.up, self.back))
        words = [str(directory / "sender"), base, str(local), results, str(count), str(at_once), str(self.record)]
        self.sender = Running("tests.faults.http_sender", words, self.log)

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self.sender, self.receiver):
            one.kill()
        for relay in (self.up, self.back):
            relay.__exit__()

    def finish(self, seconds: float) -> None:
        """Until the sender has been told of all, or the time is over: a dead process is started again."""
        deadline = time.monotonic() + seconds
        while (code := self.sender.look()) is None:
            assert self.receiver.look() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.02)
        assert code == 0, self.log.read_text()[-3000:]

    def settle(self, seconds: float = 120.0) -> None:
        """Until the receiver has handled all that it has acknowledged."""
        deadline = time.monotonic() + seconds
        while True:
            self.receiver.look()
            time.sleep(0.1)
            self.receiver.kill()
            with contextlib.closing(sqlite3.connect(self.directory / "receiver" / "http.db")) as db:
                query = "select count(*) from pubsub_http_inbox where standing = 'received'"
                if not db.execute(query).fetchone()[0]:
                    return
            assert time.monotonic() < deadline
            self.receiver.start()
            time.sleep(2.0)

    def objections(self) -> list[str]:
        """The faults, by the receiver's own table and the notes of the sender's application."""
        with contextlib.closing(sqlite3.connect(self.directory / "receiver" / "http.db")) as db:
            rows = [(int(value), token) for value, token in db.execute("select value, token from effects")]
        told: dict[int, set[str]] = {}
        for line in self.record.read_text().splitlines():
            one: dict[str, Any] = json.loads(line)
            told.setdefault(one["value"], set()).add(one["answer"])
        times, tokens = Counter(value for value, _ in rows), dict(rows)
        wrong = [f"{value} happened {times[value]} times" for value in range(self.count) if times[value] != 1]
        wrong += [f"{value} was never asked for" for value in times if not 0 <= value < self.count]
        for value in range(self.count):
            expected = {""} if kind_of(value) == "send" else {tokens.get(value, "?")}
            if told.get(value, set()) != expected:
                wrong.append(f"{value} was told as {told.get(value)}, and {expected} happened")
        return wrong

    def meddle(self, random: Any, stop: threading.Event) -> Counter[str]:
        """Faults at random until told to stop, and none then.

        Of the kills four in five wait until something was done since the last one: on a machine that does much else
        two programs that are killed while they start would never come to anything.
        """
        done: Counter[str] = Counter()
        seen = 0
        while not stop.wait(random.uniform(0.05, 0.6)):
            relay = random.choice((self.up, self.back))
            what = random.choice(("sender", "receiver", "cut", "delay", "lose", "heal", "repeat", "heal"))
            size = self.record.stat().st_size if self.record.exists() else 0
            if what in {"sender", "receiver"}:
                if size == seen and random.random() < 0.8:
                    continue
                seen = size
            done[what] += 1
            match what:
                case "sender":
                    self.sender.kill()
                case "receiver":
                    self.receiver.kill()
                case "cut":
                    relay.cut()
                case "delay":
                    relay.delay = random.uniform(0.0, 0.3)
                case "lose":
                    relay.silent = {random.choice(("up", "down"))}
                case "repeat":
                    done["bytes repeated"] += relay.repeat(5)
                case "heal":
                    relay.heal()
        for relay in (self.up, self.back):
            relay.heal()
        return done
