"""Exceptions of signal handlers anywhere within the client: nothing is lost, nothing happens twice, nothing hangs."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import pytest
from interrupted_steps import END, Reading, Writing
from striking import Strike, Striker, by_day_some, places

from pubsub import embedded
from pubsub.client import AsyncClient, Client, Message, Transaction
from pubsub.client.flows.awaiting import HandlerTransaction
from pubsub.client.flows.processing import Processing
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, InDoubt, Interrupted, StoreInUse, Unavailable
from tests.client.opened import PATIENCE, names

SAMPLE = 25
"""Interrupted places for each call. For all places run: python tests/client/test_interrupts.py"""


# The interpreter only prints an exception within a `__del__`.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def strike(call: Callable[[], Any], at: int, *, everywhere: bool = False) -> Striker:
    striker = Striker(at, everywhere=everywhere)
    with suppress(Strike, Interrupted):
        striker.run(call)
    return striker


def run(cluster: Embedded, kind: str, sample: int | None, *, everywhere: bool = False, seed: int = 1) -> dict[str, Any]:
    name = f"{kind}-{'x' if everywhere else 'c'}"
    subject: Any = Writing(cluster, name) if hasattr(Writing, kind) else Reading(cluster, name)
    if isinstance(subject, Reading):
        subject.again()
    call = getattr(subject, kind)
    call()
    subject.again()
    count = strike(call, 0, everywhere=everywhere).count
    subject.again()
    for at in places(count, sample, seed):
        striker = strike(getattr(subject, kind), at, everywhere=everywhere)
        if striker.place and isinstance(subject, Reading):
            subject.strikes += 1
        try:
            subject.again()
        except BaseException:
            print(kind, at, striker.place)
            raise
    subject.check(*([kind] if isinstance(subject, Reading) else []))
    return {
        "kind": kind,
        "places": count,
        "missing": getattr(subject, "missing", 0),
    }


KINDS = ("put", "put_many", "transaction", "publisher", "process", "get", "get_many", "messages")


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_interrupted_anywhere_loses_nothing_and_does_nothing_twice(cluster: Embedded, kind: str) -> None:
    run(cluster, kind, SAMPLE)


def test_a_client_whose_opening_is_interrupted_anywhere_can_be_opened(cluster: Embedded) -> None:
    """No caller has the interrupted client, so none could close it."""
    cluster.client("measured").close()
    made: list[Client] = []
    count = strike(lambda: made.append(cluster.client("measured")), 0).count
    for at in places(count, 2 * SAMPLE, 3):
        for client in made:
            client.close()
        made.clear()
        striker = strike(lambda at=at: made.append(cluster.client(f"struck-{at}")), at)
        gc.collect()
        if not made:
            try:
                cluster.client(f"struck-{at}").close()
            except StoreInUse:
                pytest.fail(f"{at}: {striker.place}")


@pytest.mark.parametrize("kind", ["put", "transaction", "process"])
def test_a_coroutines_call_interrupted_anywhere_loses_nothing(cluster: Embedded, kind: str) -> None:
    topic, name = f"t-async-{kind}", f"async-{kind}"
    sure: list[str] = []
    made: list[str] = []
    refused: list[CallerError] = []

    async def handle(message: Message, transaction: Transaction) -> None:
        await asyncio.sleep(0)
        transaction.execute("insert into effects values (?)", (message.body.decode(),))

    async def opened() -> AsyncClient:
        client = cluster.async_client(name)
        await client.subscribe(topic)
        return client

    async def call(client: AsyncClient, timeout: float = PATIENCE) -> None:
        made.append(str(len(made)))
        body = made[-1].encode()
        if kind == "transaction":
            with client.transaction() as transaction:
                await client.put(topic, body, transaction=transaction)
        else:
            await client.put(topic, body, timeout=timeout)
        sure.append(made[-1])
        if kind == "process":
            await client.process(topic, handle, timeout=timeout)

    with asyncio.Runner() as runner:
        client = runner.run(opened())
        with client.transaction() as transaction:
            transaction.execute("create table effects (body text)")
        runner.run(call(client))
        counted = Striker(0)
        runner.run(under(counted, call(client)))
        assert counted.count > 10  # Python 3.13 shows a tracer far fewer places of a coroutine than 3.11 does.
        for at in places(counted.count, SAMPLE, 2):
            # asyncio only logs an exception in a callback: the call that it should wake ends at its deadline.
            with suppress(Strike, Interrupted, InDoubt, Unavailable):
                runner.run(under(Striker(at), call(client, 2.0)))
            try:
                runner.run(call(client))
            except CallerError as error:  # Still in the transaction, interrupted at its very end.
                refused.extend([error] if isinstance(error, Interrupted) else [])
                runner.run(client.close())
                client = runner.run(opened())
        runner.run(client.flush(timeout=PATIENCE))
        runner.run(client.put(topic, END.encode(), timeout=PATIENCE))
        effects: Counter[str] = Counter()
        while END not in effects:
            assert runner.run(client.process(topic, handle, timeout=PATIENCE))
            with client.transaction() as transaction:
                effects = Counter(body for (body,) in transaction.execute("select body from effects"))
        runner.run(client.close())
    assert not {body for body, times in effects.items() if times > 1}, "twice"
    assert not set(sure) - effects.keys(), "lost"
    assert not refused


HANDLING = {
    "begin": HandlerTransaction.check_open,
    "commit": HandlerTransaction.commit,
    "roll_back": HandlerTransaction.roll_back,
    "batch": Processing.batch,
    "attempt": Processing.run,
    "uncount": Processing._uncount,
    "let_go": Processing._let_go,
}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("function", HANDLING)
@by_day_some
def test_a_coroutines_handling_interrupted_anywhere_blocks_nobody(
    cluster: Embedded, function: str, sample: int | None
) -> None:
    """The client continues, and each message has its effect once."""
    was_interrupted: list[str] = []

    async def handle(message: Message, transaction: Transaction) -> None:
        transaction.execute("insert into effects values (?)", (message.body.decode(),))

    async def fail(message: Message, transaction: Transaction) -> None:
        await handle(message, transaction)
        raise asyncio.CancelledError if function == "uncount" else ValueError

    async def opened(name: str) -> AsyncClient:
        client = cluster.async_client(name)
        await client.subscribe(name)
        return client

    async def once(at: int) -> Striker:
        striker, name = Striker(at, within=cast("FunctionType", HANDLING[function])), f"{function}-{at}"
        client = await opened(name)
        await client.put(name, b"x", timeout=PATIENCE)
        with client.transaction() as transaction:
            transaction.execute("create table effects (body text)")
        with suppress(Strike, ValueError, asyncio.CancelledError):
            handler = fail if function in {"roll_back", "uncount"} else handle
            await under(striker, client.process(name, handler, timeout=PATIENCE))
        was_interrupted.append(striker.place)
        await client.put(name, END.encode(), timeout=PATIENCE)
        effects: list[str] = []
        while END not in effects:
            assert await client.process(name, handle, timeout=PATIENCE)
            with client.transaction() as transaction:
                effects = [body for (body,) in transaction.execute("select body from effects order by rowid")]
        assert effects == ["x", END]
        assert not client.dead_letters()
        await client.close()
        return striker

    async def work() -> None:
        for at in places((await once(0)).count, sample, 4):
            await once(at)

    asyncio.run(work())
    assert len(set(was_interrupted)) > 1


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("function", HANDLING)
@by_day_some
def test_a_plain_handling_interrupted_anywhere_blocks_nobody(
    cluster: Embedded, function: str, sample: int | None
) -> None:
    def handle(message: Message, transaction: Transaction) -> None:
        transaction.execute("insert into effects values (?)", (message.body.decode(),))

    def fail(message: Message, transaction: Transaction) -> None:
        handle(message, transaction)
        raise KeyboardInterrupt if function == "uncount" else ValueError

    def once(at: int) -> Striker:
        striker, name = Striker(at, within=cast("FunctionType", HANDLING[function])), f"plain-{function}-{at}"
        with cluster.client(name) as client:
            client.subscribe(name)
            client.put(name, b"x", timeout=PATIENCE)
            with client.transaction() as transaction:
                transaction.execute("create table effects (body text)")
            with suppress(Strike, ValueError, KeyboardInterrupt):
                handler = fail if function in {"roll_back", "uncount", "let_go"} else handle
                striker.run(lambda: client.process(name, handler, timeout=PATIENCE))
            client.put(name, END.encode(), timeout=PATIENCE)
            effects: list[str] = []
            while END not in effects:
                assert client.process(name, handle, timeout=PATIENCE)
                with client.transaction() as transaction:
                    effects = [body for (body,) in transaction.execute("select body from effects order by rowid")]
            assert effects == ["x", END], striker.place
            assert not client.dead_letters()
        return striker

    was_interrupted = {once(at).place for at in places(once(0).count, sample, 4)}
    assert len(was_interrupted) > 1


def test_calls_of_other_threads_end_when_a_step_is_interrupted(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.client("threads") as client:
        client.subscribe("quiet")
        ends: list[BaseException] = []

        def wait() -> None:
            try:
                client.get("quiet", timeout=2 * PATIENCE)
            except Interrupted as error:
                ends.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        while not client._session.core.subscriptions["quiet"].waiting:
            pass

        def was_interrupted(*_: object, **__: object) -> None:
            raise Strike

        monkeypatch.setattr(client._session.core.outbox, "enter", was_interrupted)
        with pytest.raises(Strike):
            client.put("quiet", b"committed")
        waiting.join(PATIENCE)
        assert len(ends) == 1
        client.flush(timeout=PATIENCE)
        message = client.get("quiet", timeout=PATIENCE)
        assert message is not None
        assert message.body == b"committed"


def test_the_caller_gets_the_exception_raised_after_a_handlers_commit(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is then released in a step, which finds the earlier step interrupted."""

    async def work() -> None:
        async with cluster.async_client("behind") as client:
            await client.subscribe("behind")
            await client.put("behind", b"x")

            def was_interrupted(*_: object) -> None:
                raise Strike

            monkeypatch.setattr(client._session.core.subscription("behind").prefetch, "took", was_interrupted)
            with pytest.raises(Strike):
                await client.process("behind", lambda *_: None)
            await client.put("behind", b"y")
            message = await client.get("behind", timeout=PATIENCE)
            assert message is not None
            assert message.body == b"y"

    asyncio.run(work())


def test_a_client_closed_within_its_transaction_rolls_it_back(cluster: Embedded) -> None:
    client = cluster.client("leaves")

    def leaves() -> None:
        with client.transaction() as transaction:
            transaction.execute("create table never (one)")
            client.close()

    with pytest.raises(CallerError, match="closed"):
        leaves()
    with cluster.client("leaves") as again, again.transaction() as transaction:
        assert transaction.execute("select count(*) from sqlite_master where name = 'never'").get == 0


async def under(striker: Striker, call: Coroutine[Any, Any, object]) -> None:
    """Await a call on an event loop with an interrupted thread."""
    before = sys.gettrace()
    sys.settrace(striker.enter)
    try:
        await call
    finally:
        sys.settrace(before)


STORM = """
import random, signal, sys
from pubsub import Client

class Alarm(BaseException):
    pass

def strike(*_):
    raise Alarm

name, proxy, folder, wanted = sys.argv[1:]
chance, sure, number, strikes = random.Random(7), [], 0, 0

def opened():
    client = Client(name, proxies=[proxy], directory=folder)
    client.subscribe("storm")
    return client

def handle(message, transaction):
    transaction.execute("insert into effects values (?)", (message.body,))

def step(client):
    global number
    number += 1
    body = b"%d" % number
    kind = number % 3
    if kind == 0:
        client.put("storm", body)
    elif kind == 1:
        with client.transaction() as transaction:
            client.put("storm", body, transaction=transaction)
    else:
        client.put_many("storm", [body])
    sure.append(body)
    client.process("storm", handle, timeout=0.0)

client = opened()
with client.transaction() as transaction:
    transaction.execute("create table effects (body blob)")
signal.signal(signal.SIGALRM, strike)
while strikes < int(wanted):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0005, 0.03))
        try:
            for _ in range(1000):  # An alarm within a `__del__` is only printed, by the interpreter.
                step(client)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Alarm:
        strikes += 1
client.close()
client = opened()
client.flush()
client.put("storm", b"end")
effects = []
while b"end" not in effects:
    assert client.process("storm", handle, timeout=60.0)
    with client.transaction() as transaction:
        effects = [body for (body,) in transaction.execute("select body from effects")]
assert len(effects) == len(set(effects)), "twice"
assert not set(sure) - set(effects), "lost"
assert not client.dead_letters()
client.close()
print(strikes, len(sure))
"""


@pytest.mark.timeout(330)
def test_a_storm_of_alarms_loses_nothing_and_does_nothing_twice(service: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", STORM, "stormy", service, str(tmp_path), "100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300.0, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    strikes, sure = map(int, done.stdout.split())
    assert strikes
    assert sure


if __name__ == "__main__":
    import argparse
    import faulthandler
    import tempfile

    parser = argparse.ArgumentParser()
    parser.add_argument("--everywhere", action="store_true")
    parser.add_argument("--sample", type=int)
    parser.add_argument("kinds", nargs="*")
    chosen = parser.parse_args()
    faulthandler.dump_traceback_later(590, exit=True)
    with tempfile.TemporaryDirectory() as folder, embedded(Path(folder)) as running:
        for one in chosen.kinds or KINDS:
            found = run(running, one, chosen.sample, everywhere=chosen.everywhere)
            print(found, flush=True)
    assert threading.active_count() < 50
    sys.exit(0)


def test_messages_of_an_interrupted_client_return_though_a_later_duplicate_was_skipped(
    cluster: Embedded,
) -> None:
    name, topic = f"client{next(names)}", f"topic{next(names)}"
    with cluster.client(name) as client, cluster.client(f"{name}b") as other:
        client.subscribe(topic)
        client.put_many(topic, [b"a", b"b"])
        other.put(topic, b"before")
        session = client._session
        session.core.subscriptions[topic].cursor.taken[other.publisher_id] = (
            1 << 62
        )  # It was taken by an earlier subscription.
        messages = client.messages(topic, timeout=PATIENCE)
        assert next(messages).body == b"a"
        session.in_step = True  # A step was cut off.
        client.close()
        messages.close()
    with cluster.client(name) as again:
        assert again.get_many(topic, 1, timeout=PATIENCE).bodies() == [b"b"]
