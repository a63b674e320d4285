"""Kill a worker in mid-job: the same story here and at peers that run on this machine.

    python -m benchmarks.jobs [ours redis rabbitmq nats]

One worker of two gets a job and is killed with SIGKILL in it. When does the other worker get the job, and does anything
tell it that the job may have been done before? A second job takes longer than the peer's time-out, and its worker
lives: is the job begun twice? TIMEOUT_SECONDS is the time-out that a user chooses. It is `min-idle-time` of XAUTOCLAIM
for Redis, `ack_wait` for NATS, and `consumer_timeout` for RabbitMQ, which looks at it once a second here, and once a
minute by default.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.groups import peers
from benchmarks.groups.takers import Taker
from benchmarks.redis import Redis, connect
from benchmarks.services import free_address
from benchmarks.stage import Stage
from benchmarks.worker import open_client
from pubsub.errors import ConfigurationError

TIMEOUT_SECONDS: Final = 5.0
LONG_SECONDS: Final = 12.0
"""Time that the long job takes. Its worker lives."""

NAMES: Final = ("ours", "redis", "rabbitmq", "nats")
READY_SECONDS: Final = 60.0
QUEUE: Final = "jobs"

Say = Callable[[Any], None]


def _job(say: Say, word: str, told: str) -> None:
    """Begin a job, and say so; the words of the peer about it are `told`."""
    say({"begins": time.monotonic(), "job": word, "told": told, "worker": os.getpid()})
    time.sleep(LONG_SECONDS)


# Workers


def ours_worker(say: Say, where: Any, directory: str) -> None:
    """A member of a group that claims each job before its handler begins."""
    with open_client(where, Path(directory)) as client:
        client.subscribe(QUEUE, group="g")
        say("up")

        def handle(message: Any, transaction: Any) -> None:
            del transaction
            _job(say, message.body.decode(), f"attempts={message.attempts} doubtful={message.doubtful}")

        while True:
            client.process(QUEUE, handle, 60.0, group="g", claim="before")


def redis_worker(say: Say, where: str, directory: str) -> None:
    """XREADGROUP of one job, and XAUTOCLAIM of jobs idle beyond the time-out, as the manual shows."""
    redis, name = connect(where), Path(directory).name
    say("up")
    while True:
        found = redis.execute_command(
            "XAUTOCLAIM", QUEUE, "g", name, int(TIMEOUT_SECONDS * 1000), "0", "COUNT", 1
        )[1]  # fmt: skip
        if not found:
            reply = redis.execute_command(
                "XREADGROUP", "GROUP", "g", name, "COUNT", 1, "BLOCK", 500, "STREAMS", QUEUE, ">"
            )
            found = reply[0][1] if reply else []
        for entry, fields in found:
            pending = redis.xpending_range(QUEUE, "g", entry, entry, 1)[0]
            body = fields[b"b"] if isinstance(fields, dict) else fields[1]
            _job(say, body.decode(), f"times_delivered={pending['times_delivered']}, if the worker asks XPENDING")
            redis.xack(QUEUE, "g", entry)


def rabbitmq_worker(say: Say, where: int, directory: str) -> None:
    """A consumer with prefetch 1 that acknowledges after the job, and connects again when its channel is closed."""
    del directory
    errors = importlib.import_module("pika.exceptions")
    say("up")
    while True:
        try:
            _consume(say, where)
        except errors.AMQPError as error:
            sys.stderr.write(f"rabbitmq closed the channel of {os.getpid()}: {error}\n")


def _consume(say: Say, where: int) -> None:
    """Work until the channel is closed; the connection's heartbeats go on while a thread has the job."""
    pika = importlib.import_module("pika")
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", where, heartbeat=60))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)

    def work(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        del properties

        def run() -> None:
            _job(say, body.decode(), f"redelivered={method.redelivered}")
            connection.add_callback_threadsafe(lambda: channel.basic_ack(method.delivery_tag))

        threading.Thread(target=run, daemon=True).start()

    channel.basic_consume(QUEUE, work)
    channel.start_consuming()


def nats_worker(say: Say, where: str, directory: str) -> None:
    """A pull consumer of one job at a time that acknowledges after the job."""
    del directory

    async def run() -> None:
        client = await importlib.import_module("nats").connect(where)
        consumer = await client.jetstream().pull_subscribe_bind(consumer="g", stream=QUEUE)
        say("up")
        while True:
            try:
                (message,) = await consumer.fetch(1, timeout=1)
            except TimeoutError:
                continue
            told = f"num_delivered={message.metadata.num_delivered}"
            await asyncio.to_thread(_job, say, message.data.decode(), told)
            await message.ack()

    asyncio.run(run())


# Servers; each yields where its workers connect, and how to put a job


@contextmanager
def _ours(directory: Path) -> Iterator[tuple[Any, Callable[[str], object]]]:
    with Stage(directory) as stage, stage.client("putter") as client:
        client.subscribe(QUEUE, group="g")
        client.leave(QUEUE, group="g")
        yield stage.where, lambda word: client.put(QUEUE, word.encode())


@contextmanager
def _redis(directory: Path) -> Iterator[tuple[Any, Callable[[str], object]]]:
    with Redis(directory) as server:
        redis = connect(server.address)
        redis.xgroup_create(QUEUE, "g", mkstream=True)
        yield server.address, lambda word: redis.xadd(QUEUE, {"b": word})


@contextmanager
def _nats(directory: Path) -> Iterator[tuple[Any, Callable[[str], object]]]:
    with peers.Nats(directory) as server:
        peers.fill_nats(server, QUEUE, ["g"], 0, b"", TIMEOUT_SECONDS)

        async def put(word: str) -> None:
            client = await importlib.import_module("nats").connect(server.url)
            await client.jetstream().publish(QUEUE, word.encode())
            await client.close()

        yield server.url, lambda word: asyncio.run(put(word))


@contextmanager
def _rabbitmq(directory: Path) -> Iterator[tuple[Any, Callable[[str], object]]]:
    directory.mkdir(parents=True)
    port, epmd_port = (int(free_address().rpartition(":")[2]) for _ in range(2))
    (directory / "rabbitmq.conf").write_text("", encoding="utf-8")
    timeouts = f"{{consumer_timeout, {int(TIMEOUT_SECONDS * 1000)}}}, {{channel_tick_interval, 1000}}"
    (directory / "advanced.config").write_text(f"[{{rabbit, [{timeouts}]}}].\n", encoding="utf-8")
    environment = {
        **os.environ, "HOME": str(directory), "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(port), "RABBITMQ_DIST_PORT": str(port + 1),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"), "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "advanced.config"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"), "RABBITMQ_ENABLED_PLUGINS_FILE": os.devnull,
        "ERL_EPMD_PORT": str(epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }  # fmt: skip
    # The script on the PATH of Debian changes the user; the one that it runs does not.
    script = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    command = str(script) if script.exists() else shutil.which("rabbitmq-server") or "rabbitmq-server"
    with ExitStack() as stack:
        for words in (["epmd"], [command]):
            process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
            stack.callback(_end, process)
        pika = importlib.import_module("pika")
        parameters, end = pika.ConnectionParameters("127.0.0.1", port), time.monotonic() + READY_SECONDS
        while True:
            try:
                pika.BlockingConnection(parameters).channel().queue_declare(QUEUE, durable=True)
                break
            except pika.exceptions.AMQPError:
                if time.monotonic() > end:
                    raise ConfigurationError(f"rabbitmq-server did not start within {READY_SECONDS:g} s") from None
                time.sleep(0.2)

        def put(word: str) -> None:
            with pika.BlockingConnection(parameters) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                properties = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", QUEUE, word.encode(), properties)

        yield port, put


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, 9)
    process.wait()


_SERVERS: Final = {"ours": _ours, "redis": _redis, "rabbitmq": _rabbitmq, "nats": _nats}


def story(name: str, directory: Path) -> Iterator[str]:
    """Kill the worker of a job, and yield a sentence for each thing that happened."""
    with _SERVERS[name](directory / name) as (where, put), ExitStack() as stack:
        places = [str(directory / f"{name}-w{number}") for number in range(2)]
        role = f"benchmarks.jobs:{name}_worker"
        workers = [stack.enter_context(Taker(role, where, place)) for place in places]
        for worker in workers:
            worker.said()
        put("killed")
        begun = _next(workers, READY_SECONDS)
        if begun is None:
            yield f"no worker began it within {READY_SECONDS:g} s"
            return
        number = next(number for number, worker in enumerate(workers) if worker.pid == begun["worker"])
        first, second = workers[number], workers[1 - number]
        killed = first.kill()
        found = _next([second], LONG_SECONDS)
        yield _told(found, killed, "the kill")
        if found is None:
            again = stack.enter_context(Taker(role, where, places[number]))
            again.said()  # Its client is open, and has joined.
            back = time.monotonic()
            yield _told(_next([second, again], LONG_SECONDS), back, "the killed one is back")


def _next(workers: Sequence[Taker], seconds: float) -> dict[str, Any] | None:
    """The job that one of the workers begins within a time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for worker in workers:
            if (found := worker.said_within(0.05)) is not None:
                return dict(found)
    return None


def _told(found: dict[str, Any] | None, since: float, what: str) -> str:
    if found is None:
        return f"nobody began it again within {LONG_SECONDS:g} s of {what}"
    return f"begun again {found['begins'] - since:+.1f} s from when {what}, told: {found['told']}"


def long_job(name: str, directory: Path) -> Iterator[str]:
    """Run a job that takes longer than the time-out, with a worker that lives; yield the events."""
    with _SERVERS[name](directory / f"{name}-long") as (where, put):
        role = f"benchmarks.jobs:{name}_worker"
        places = [str(directory / f"{name}-l{number}") for number in range(2)]
        with Taker(role, where, places[0]) as first:
            first.said()
            put("long")
            begun = first.said()["begins"]
            with Taker(role, where, places[1]) as second:
                second.said()
                yield _told(_next([second], LONG_SECONDS), begun, "it began")


def main(names: list[str]) -> None:
    """Tell the story of each."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            lacks = "" if name == "ours" else peers.missing(name)
            if lacks:
                sys.stdout.write(f"{name}: not here, {lacks}\n")
                continue
            for title, lines in (("killed in mid-job", story), ("a job longer than the time-out", long_job)):
                for line in lines(name, Path(folder)):
                    sys.stdout.write(f"{name}, {title}: {line}\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:] or list(NAMES))
