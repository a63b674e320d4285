"""Calls of a client that all proxies refuse, that one of two refuses, and that is accepted later, with real proxies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from keyed import BOB, EVERYTHING, SECONDS, Keyed, Proxy, keyed, line, pair, public, wait_until

from pubsub.client import AsyncClient, Client
from pubsub.client.core.refusing_proxies import RETRY_REFUSED_SECONDS
from pubsub.config import ClientSettings
from pubsub.errors import CallerError, InDoubt, KeyRefused
from pubsub.security.keys import format_secret
from pubsub.security.process_keys import ClientKeys
from tests.client.opened import nothing

AT_ONCE = 10.0
"""Seconds: far less than any time-out here, and far more than a refusal takes."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with keyed(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "clients"


def unknown(cluster: Keyed, client: str) -> str:
    key = public("stranger")
    return (
        f"proxy {cluster.proxy.address} does not know the key {key[:11]}… of client {client}: "
        f"pubsub keys authorize client {client} {key}"
    )


def refused(call: Callable[[], object]) -> str:
    """Return the error of a call that is refused at once."""
    begun = time.monotonic()
    with pytest.raises(KeyRefused) as error:
        call()
    assert time.monotonic() - begun < AT_ONCE
    assert error.value.exit_code == 21
    assert "\n" not in str(error.value)
    return str(error.value)


def may_knock(client: Client) -> None:
    """Wait until the last refusal is so old that the next call asks again."""
    refusing = client._session.core.refusing
    wait_until(lambda: time.monotonic() - refusing._since > RETRY_REFUSED_SECONDS)


def publish(client: Client) -> None:
    with client.publisher("t") as publisher:
        publisher.put(b"x")


CALLS: dict[str, Callable[[Client], object]] = {
    "put": lambda client: client.put("t", b"x"),
    "put_many": lambda client: client.put_many("t", [b"x", b"y"]),
    "publisher": publish,
    "subscribe": lambda client: client.subscribe("t"),
}
TAKES: dict[str, Callable[[Client], object]] = {
    "get": lambda client: client.get("t"),
    "get_many": lambda client: client.get_many("t"),
    "messages": lambda client: next(client.messages("t")),
    "messages that wait for ever": lambda client: next(client.messages("t", timeout=None)),
    "process": lambda client: client.process("t", lambda message, transaction: None),
    "subscribe again": lambda client: client.subscribe("t"),
    "unsubscribe": lambda client: client.unsubscribe("t"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_each_call_ends_at_once(cluster: Keyed, directory: Path, call: Callable[[Client], object]) -> None:
    with cluster.client(key="stranger", directory=directory) as client:
        assert refused(lambda: call(client)) == unknown(cluster, "alice")
        assert refused(lambda: call(client)) == unknown(cluster, "alice")


@pytest.mark.parametrize("call", TAKES.values(), ids=TAKES.keys())
def test_each_call_that_takes_ends_at_once(cluster: Keyed, directory: Path, call: Callable[[Client], object]) -> None:
    with cluster.client(directory=directory) as client:
        client.subscribe("t")
    with cluster.client(key="stranger", directory=directory) as client:
        assert refused(lambda: call(client)) == unknown(cluster, "alice")


async def async_publish(client: AsyncClient) -> None:
    async with client.publisher("t") as publisher:
        await publisher.put(b"x")


ASYNC_CALLS: dict[str, Callable[[AsyncClient], Awaitable[Any]]] = {
    "put": lambda client: client.put("t", b"x"),
    "publisher": async_publish,
    "flush": lambda client: client.flush(),
    "subscribe": lambda client: client.subscribe("t"),
    "get": lambda client: client.get("t"),
    "messages": lambda client: client.messages("t").__anext__(),  # type: ignore[attr-defined]
    "process": lambda client: client.process("t", lambda message, transaction: None),
}


@pytest.mark.parametrize("call", ASYNC_CALLS.values(), ids=ASYNC_CALLS.keys())
def test_each_call_that_is_awaited_ends_at_once(
    cluster: Keyed, directory: Path, call: Callable[[AsyncClient], Awaitable[Any]]
) -> None:
    with cluster.client(directory=directory) as client:
        client.subscribe("t")

    async def main() -> None:
        async with cluster.async_client(key="stranger", directory=directory) as client:
            await client.put("t", b"kept", wait=False)
            begun = time.monotonic()
            with pytest.raises(KeyRefused, match="does not know the key"):
                await call(client)
            assert time.monotonic() - begun < AT_ONCE

    asyncio.run(main())


@pytest.mark.parametrize(
    ("has", "expects", "text"),
    [
        ("alice", "stranger", "{} closed the handshake: its key is not the one in the proxies file, {}"),
        ("", "", "{} wants a key: pubsub keys new client alice"),
    ],
    ids=["another key", "no key"],
)
def test_the_error_names_the_mistake_in_the_keys(
    cluster: Keyed, directory: Path, has: str, expects: str, text: str
) -> None:
    keys = ClientKeys(pair(has), ((pair(expects).public,),)) if has else None
    with Client("alice", keys=keys, **cluster.settings(directory=directory)) as client:
        said = refused(lambda: client.put("t", b"x"))
    assert said == text.format(cluster.proxy.address, public(expects) if expects else "")


def test_a_proxy_without_a_key_is_not_used_if_one_is_expected(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path, "p1", key="none")
    try:
        settings = ClientSettings(proxies=(proxy.address,), directory=tmp_path)
        keys = ClientKeys(pair("alice"), ((pair("p1").public,),))
        with Client("alice", settings=settings, keys=keys) as client:
            said = refused(lambda: client.put("t", b"x"))
        assert said == f"{proxy.address} has no key; one is named in the proxies file, {public('p1')}: not used"
    finally:
        proxy.stop()


def test_refused_puts_are_kept_and_sent_once_after_the_authorization(cluster: Keyed, directory: Path) -> None:
    with cluster.client("bob", directory=directory) as bob, cluster.client("carol", directory=directory) as carol:
        bob.subscribe("kept")
        refused(lambda: carol.put("kept", b"1"))
        carol.put("kept", b"2", wait=False)
        with carol.transaction() as transaction:
            carol.put("kept", b"3", transaction=transaction)
        assert carol.unfinished("kept") == 3
        cluster.authorize(EVERYTHING, BOB, line("client", "carol", "put=*"))
        may_knock(carol)
        carol.flush()
        carol.put("kept", b"4")
        assert [bob.get("kept").body for _ in range(4)] == [b"1", b"2", b"3", b"4"]  # type: ignore[union-attr]
        assert nothing(bob, "kept")


NEXT: dict[str, Callable[[Client], object]] = {
    "flush": Client.flush,
    "put": lambda client: client.put("t", b"x"),
    "put_many": lambda client: client.put_many("t", [b"x"]),
}


@pytest.mark.parametrize("call", NEXT)
def test_a_client_authorized_meanwhile_succeeds_with_its_next_call(cluster: Keyed, directory: Path, call: str) -> None:
    """The call does not wait for the Messenger's next attempt to connect, which may be half a minute away."""
    name = "dave"
    cluster.authorize(EVERYTHING, BOB)
    with cluster.client(name, directory=directory) as dave:
        for _ in range(3):  # Each time a new handshake, and each doubles the pause until the next by itself.
            refused(lambda: dave.put("t", b"x"))
            may_knock(dave)
        cluster.authorize(EVERYTHING, BOB, line("client", name, "put=*"))
        may_knock(dave)
        begun = time.monotonic()
        NEXT[call](dave)
        assert time.monotonic() - begun < AT_ONCE
        assert dave.unfinished("t") == 0


def test_repeated_calls_of_a_refused_client_cause_few_handshakes(cluster: Keyed, directory: Path) -> None:
    with cluster.client(key="stranger", directory=directory) as client:
        refused(lambda: client.put("t", b"x"))
        before, begun = cluster.proxy.count("handshakes_refused_key"), time.monotonic()
        for _ in range(200):
            refused(client.flush)
        most = 2 + int((time.monotonic() - begun) / RETRY_REFUSED_SECONDS)
        assert cluster.proxy.count("handshakes_refused_key") - before <= most


def test_a_call_that_waits_for_a_proxy_ends_when_that_comes_and_refuses(tmp_path: Path) -> None:
    first = Proxy(tmp_path, "p1")
    address = first.address
    first.stop()
    settings = ClientSettings(proxies=(address,), directory=tmp_path, timeout_seconds=60.0)
    errors: list[BaseException] = []

    def put(client: Client) -> None:
        try:
            client.put("t", b"x")
        except KeyRefused as error:
            errors.append(error)

    with Client("alice", settings=settings, keys=ClientKeys(pair("alice"), ((pair("p1").public,),))) as client:
        threads = [threading.Thread(target=put, args=(client,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: client.unfinished("t") == 3)
        again = Proxy(tmp_path, "p1", bind=address)
        try:
            for thread in threads:
                thread.join(SECONDS)
            assert len(errors) == 3
        finally:
            again.stop()


def test_a_call_waits_while_one_proxy_refuses_and_the_other_is_away(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path, "p1")
    away = "tcp://127.0.0.1:9"
    try:
        settings = ClientSettings(proxies=(proxy.address, away), directory=tmp_path, timeout_seconds=0.5)
        keys = ClientKeys(pair("alice"), ((pair("p1").public,), (pair("p2").public,)))
        with Client("alice", settings=settings, keys=keys) as client, pytest.raises(InDoubt) as error:
            client.put("t", b"x")
        assert f"proxy {proxy.address} does not know the key" in str(error.value)
        assert f"; {away}: Connection refused" in str(error.value)
    finally:
        proxy.stop()


def test_a_refusing_proxy_is_skipped_and_used_again_later(tmp_path: Path) -> None:
    with keyed(tmp_path, proxies=2) as cluster:
        first, second = cluster.proxies
        first.authorize(BOB)
        with cluster.client(tries=1) as alice, cluster.client("bob") as bob:
            bob.subscribe("t")
            begun = time.monotonic()
            for number in range(20):
                alice.put("t", b"%d" % number)
            assert time.monotonic() - begun < AT_ONCE
            core = alice._session.core
            assert list(core.refusing.refusals) == [0]
            assert core.proxy == 1
            assert first.count("denied") == 0
            first.authorize(EVERYTHING, BOB)
            wait_until(lambda: not core.refusing.refusals)
            second.authorize(BOB)  # An open connection is denied there; a new one would be refused.
            second.stop()
            cluster.proxies.remove(second)
            alice.put("t", b"20", timeout=SECONDS)
            assert [bob.get("t").body for _ in range(21)] == [b"%d" % number for number in range(21)]  # type: ignore[union-attr]


def test_a_proxy_restarted_with_its_next_key_is_followed_without_an_error(tmp_path: Path) -> None:
    """The server, with both keys in its proxies file too, does not matter here: a put waits until it is there."""
    with keyed(tmp_path, proxies=2) as cluster:
        first, second = cluster.proxies
        both = (pair("p1").public, pair("p1-next").public)
        keys = ClientKeys(pair("alice"), (both, (pair("p2").public,)))
        with Client("alice", keys=keys, **cluster.settings(tries=1)) as alice:
            for number, key in enumerate(("p1", "p1-next", "p1")):
                alice.put("t", b"%d" % number)
                first.stop()
                first = cluster.proxies[0] = Proxy(
                    tmp_path, "p1", EVERYTHING, BOB, bind=first.address, servers=first.process.servers, key=key
                )
                wait_until(partial(first.count, "handshakes_entered"))
                alice.put("t", b"%d" % number)
            assert not alice._session.core.refusing.refusals
        assert second.count("denied") == 0


def test_two_refusing_proxies_are_both_named(tmp_path: Path) -> None:
    with keyed(tmp_path, proxies=2) as cluster:
        cluster.authorize(BOB)
        with cluster.client() as alice:
            said = refused(lambda: alice.put("t", b"x"))
        first, second = said.split("; ")
        for text, proxy in ((first, cluster.proxies[0]), (second, cluster.proxies[1])):
            assert text.startswith(f"proxy {proxy.address} does not know the key {public('alice')[:11]}…")


def test_a_get_without_a_wait_reports_the_refusal(cluster: Keyed, directory: Path) -> None:
    with cluster.client(directory=directory) as client:
        client.subscribe("t")
    with cluster.client(key="stranger", directory=directory) as client:
        said: list[KeyRefused] = []

        def look() -> bool:
            try:
                assert client.get("t", timeout=0) is None
            except KeyRefused as error:
                said.append(error)
            return bool(said)

        wait_until(look)


def test_a_refused_client_closes_at_once_and_keeps_its_puts(cluster: Keyed, directory: Path) -> None:
    client = cluster.client(key="stranger", directory=directory)
    client.put("t", b"x", wait=False)
    begun = time.monotonic()
    client.close()
    assert time.monotonic() - begun < AT_ONCE
    with cluster.client(directory=directory) as client:
        assert client.unfinished("t") == 1
        client.flush()


def test_a_call_of_a_client_closed_meanwhile_says_that_it_is_closed(tmp_path: Path) -> None:
    settings = ClientSettings(proxies=("tcp://127.0.0.1:9",), directory=tmp_path, timeout_seconds=60.0)
    client = Client("alice", settings=settings, keys=ClientKeys(pair("alice"), ((pair("p1").public,),)))
    errors: list[BaseException] = []

    def put() -> None:
        try:
            client.put("t", b"x")
        except CallerError as error:
            errors.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    wait_until(lambda: client.unfinished("t") == 1)
    client.close()
    thread.join(SECONDS)
    assert "was closed during the call" in str(errors[0])


def test_a_cancelled_task_leaves_the_client_unchanged(cluster: Keyed, directory: Path) -> None:
    async def main() -> None:
        async with cluster.async_client(key="stranger", directory=directory) as client:
            task = asyncio.create_task(client.put("t", b"x"))
            while not client.unfinished("t"):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises((asyncio.CancelledError, KeyRefused)):  # As it comes first.
                await task
            with pytest.raises(KeyRefused):
                await client.flush()
        async with cluster.async_client(directory=directory) as client:
            await client.flush()

    asyncio.run(main())


def test_no_message_of_a_refusal_shows_a_secret(
    cluster: Keyed, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(0), cluster.client(key="stranger", directory=directory) as client:
        said = refused(lambda: client.put("t", b"x"))
        shown = said + repr(client.__dict__) + repr(client.settings) + repr(client._session.keys) + caplog.text
    for secret in (pair("stranger").secret, pair("p1").secret):
        for form in (format_secret(secret), repr(secret), secret.hex()):
            assert form not in shown
