"""The faults of a round, drawn from a seed.

kill client        SIGKILL of a consumer or of the publisher, which starts again
lose pod           the same, and its directory is lost: it goes on under its name with the same database
kill relay         SIGKILL of a relay, mostly of the active one
kill server        SIGKILL of the server, which starts again
kill proxy         SIGKILL of one of two proxies, which starts again
stop client        SIGSTOP of a worker, at times for longer than a group waits for its member; SIGCONT later
stop relay         SIGSTOP of the active relay, whose spare cannot take over; SIGCONT later
terminate          `pg_terminate_backend` of all connections of a process, of the clients, or of all
terminate commit   the same, of a backend that is in its COMMIT
cut behind commit  the link cuts a connection between COMMIT and its answer
cut before commit  the link cuts a connection before COMMIT arrives
cut behind put     the link cuts a connection between the statement of a put and its answer
stall link         the link passes nothing on for a while
backend            SIGKILL of a backend: PostgreSQL ends all connections and recovers
immediate          PostgreSQL is stopped as by a crash, and started again
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from tests.faults.cluster import Process, until
from tests.postgres.proxy import COMMIT
from tests.postgres.rounds.stage import Stage

COMMITTING: Final = """
select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and state = 'active'
    and application_name like 'pubsub client%' and query like '%pubsub.step%commit' limit 1
"""
CLIENTS: Final = "select pid from pg_stat_activity where datname = %s and application_name like %s"
PUT: Final = b"with added as"
CUT_SECONDS: Final = 5.0
"""Longest wait for a statement to cut at: a client may be away because of its last error."""

STOPPED_LONG_SECONDS: Final = 4.0
"""Longer than a server waits for a member."""


class Faults:
    """Draws faults, and carries them out.

    Attributes:
        done: how often each fault came.
        last: the faults of this round.
        cuts: connections that were cut at a statement.
    """

    def __init__(self, stage: Stage, random: Random) -> None:
        self._stage, self._random = stage, random
        self._kinds: dict[str, Callable[[], None]] = {
            "kill client": self._kill_client, "lose pod": self._lose_pod, "kill relay": self._kill_relay,
            "kill server": self._kill_server, "kill proxy": self._kill_proxy, "stop client": self._stop_client,
            "stop relay": self._stop_relay, "terminate": self._terminate, "terminate commit": self._terminate_commit,
            "cut behind commit": lambda: self._cut("cut_behind", COMMIT),
            "cut before commit": lambda: self._cut("cut_before", COMMIT),
            "cut behind put": lambda: self._cut("cut_behind", PUT), "stall link": self._stall_link,
            "backend": self._kill_backend, "immediate": lambda: stage.postgres.restart("immediate"),
        }  # fmt: skip
        self.done: Counter[str] = Counter()
        self.cuts = 0
        self.last: list[str] = []

    def one(self) -> None:
        """A round: a fault, at times with a second one at once, its end, and traffic until all go on."""
        stage = self._stage
        until(stage.active_relay, "a relay is active")
        self.last = []
        for _ in range(1 if self._random.random() < 0.8 else 2):
            fault = self._random.choice(list(self._kinds))
            self.done[fault] += 1
            self.last.append(fault)
            time.sleep(self._random.random() * 0.05)  # Somewhere in the traffic: never a wait for something.
            self._kinds[fault]()
        stage.wait_on(sum(self.done.values()))

    def _worker(self) -> Process:
        process = self._random.choice([*self._stage.consumers.values(), self._stage.putter])
        return self._stage.supervised(process)

    def _kill_client(self) -> None:
        worker = self._worker()
        worker.kill()
        self._stage.restart(worker)

    def _lose_pod(self) -> None:
        worker = self._worker()
        worker.kill()
        self._stage.restart(worker, lose=True)

    def _kill_relay(self) -> None:
        active = until(self._stage.active_relay, "a relay is active")
        victim = active if self._random.random() < 0.8 else self._random.choice(self._stage.relays)
        victim.kill()
        self._stage.link.release()  # No other process may end the backend of a connection that was cut before.
        if self._random.random() < 0.5:
            spare = next(one for one in self._stage.relays if one is not victim)
            until(lambda: " sends the rows of " in (spare.lines("relay ") or [""])[-1], "the spare is active")
        victim.start()

    def _kill_server(self) -> None:
        (server,) = self._stage.cluster.servers
        server.kill()
        server.start()

    def _kill_proxy(self) -> None:
        proxy = self._random.choice(self._stage.cluster.proxies)
        proxy.kill()
        proxy.start()

    def _stop_client(self) -> None:
        worker = self._worker()
        worker.pause()
        time.sleep(STOPPED_LONG_SECONDS if self._random.random() < 0.15 else self._random.random() * 0.3)
        worker.resume()

    def _stop_relay(self) -> None:
        relay = until(self._stage.active_relay, "a relay is active")
        relay.pause()
        time.sleep(self._random.random() * 0.3)
        relay.resume()

    # PostgreSQL and the link to it

    def _terminate(self) -> None:
        one = self._random.choice([*self._stage.consumers, "putter", "relay%"])
        pattern = self._random.choice([f"pubsub client {one}", "pubsub client%", "%"])
        with self._stage.postgres.connect(application_name="rounds") as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and application_name like %s"
                " and pid <> pg_backend_pid()",
                (self._stage.database, pattern),
            )

    def _terminate_commit(self) -> None:
        with self._stage.postgres.connect(self._stage.database, application_name="rounds") as connection:
            until(lambda: connection.execute(COMMITTING).fetchone(), "a backend commits")

    def _cut(self, where: str, statement: bytes) -> None:
        link = self._stage.link
        before = link.cuts
        setattr(link, where, statement)
        deadline = time.monotonic() + CUT_SECONDS
        while link.cuts == before and time.monotonic() < deadline:
            time.sleep(0.005)
        setattr(link, where, None)
        self.cuts += link.cuts - before

    def _stall_link(self) -> None:
        link = self._stage.link
        link.stalls = True
        time.sleep(self._random.choice((0.1, 0.3, 1.0)))
        if self._random.random() < 0.3:
            link.cut()
        link.stalls = False

    def _kill_backend(self) -> None:
        postgres = self._stage.postgres
        with postgres.connect() as connection:
            pids = [row[0] for row in connection.execute(CLIENTS, (self._stage.database, "pubsub client%"))]
        if pids:
            postgres.kill_backend(self._random.choice(pids))
            postgres.wait_ready()
