"""Topics as objects by a client, at a real proxy and a real server: create one, be refused one, purge one.

The rules are those of docs/explanation/topics.md, U1, U2 and U4.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from pubsub.client import Client, Purged
from pubsub.client.core.subscription import PURGED
from pubsub.client.topic_objects import TopicExists, _same
from pubsub.client.topic_settings import TopicSettings
from pubsub.config import ProxySettings, ServerSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, DataLoss, InvalidName, NotAllowed, NotKnown, NotNow
from pubsub.proxy.process import ProxyProcess
from pubsub.server.process import ServerProcess
from tests.client.opened import names


def test_a_topic_is_created_with_its_settings_and_again_with_the_same(client: Client, topic: str) -> None:
    made = client.create_topic(topic, keep="7d, 1GiB")
    assert (made.topic, made.keep, made.drop, made.conflict) == (topic, "7d,1GiB", "never", False)
    assert client.create_topic(topic, keep="7d,1024MiB") == made
    assert client.settings_of(topic) == made


def test_a_topic_that_exists_with_other_settings_is_refused_and_unchanged(client: Client, topic: str) -> None:
    made = client.create_topic(topic, keep="7d")
    with pytest.raises(NotNow) as error:
        client.create_topic(topic)
    assert isinstance(error.value, TopicExists)
    assert error.value.present == made
    assert str(error.value) == (f"topic {topic} exists with keep=7d drop=never; pubsub topic set {topic} changes them")
    assert client.settings_of(topic) == made


def test_a_topic_is_created_with_an_expiry(client: Client, topic: str) -> None:
    made = client.create_topic(topic, expire="60m")
    assert made.expire == "1h"
    assert client.create_topic(topic, expire="1h") == made
    with pytest.raises(NotNow, match="exists with keep=none drop=never expire=1h;"):
        client.create_topic(topic, expire="2h")
    with pytest.raises(TypeError, match="unexpected keyword argument 'expires'"):
        client.create_topic(topic, expires="2h")  # type: ignore[call-arg]


def test_a_topic_made_by_a_put_exists_with_the_defaults(client: Client, topic: str) -> None:
    client.put(topic, b"x")
    assert client.create_topic(topic).version == ""
    assert client.create_topic(topic, keep="none", drop="never").version == ""
    with pytest.raises(NotNow):
        client.create_topic(topic, keep="1d")


def test_a_topic_with_a_default_of_the_servers_has_the_settings_of_a_creation_without_any() -> None:
    present = TopicSettings("t", "7d", "never", own={"keep": "", "drop": ""})
    assert _same(present, {"keep": "", "drop": ""})
    assert _same(present, {"keep": "7d", "drop": "never"})
    assert not _same(present, {"keep": "1d", "drop": ""})
    assert not _same(TopicSettings("t", "7d", "never", own={"keep": "7d", "drop": ""}), {"keep": "", "drop": ""})


@pytest.mark.parametrize("name", ["_mine", "$calls.echo", "a*", "two words", ""])
def test_a_name_that_is_not_allowed_is_refused(client: Client, name: str) -> None:
    with pytest.raises(InvalidName):
        client.create_topic(name)


@pytest.mark.parametrize("name", ["audit.>", "_mine"])
def test_settings_do_not_create_a_topic_that_no_put_could_use(client: Client, name: str) -> None:
    with pytest.raises(InvalidName, match="are reserved"):
        client.configure(name, keep="7d")
    assert client.settings_of(name).sources == {}


def test_a_setting_that_is_not_allowed_is_refused_and_creates_nothing(client: Client, topic: str) -> None:
    with pytest.raises(CallerError):
        client.create_topic(topic, keep="7 years")
    with pytest.raises(NotKnown):
        client.purge_topic(topic)


def test_a_purge_deletes_what_is_kept_and_says_how_much(client: Client, topic: str) -> None:
    client.create_topic(topic, keep="ever")
    for _ in range(3):
        client.put(topic, b"x")
    assert client.purge_topic(topic) == Purged(topic, 3, 0)
    assert client.purge_topic(topic) == Purged(topic, 0, 0)


def test_a_purge_of_unread_messages_raises_their_loss_and_later_ones_arrive(client: Client, topic: str) -> None:
    client.subscribe(topic)
    for _ in range(3):
        client.put(topic, b"old")
    assert client.purge_topic(topic) == Purged(topic, 0, 0)
    assert client.purge_topic(topic, unread=True) == Purged(topic, 3, 3)
    client.put(topic, b"new")
    with pytest.raises(DataLoss) as loss:
        client.get(topic)
    assert loss.value.reason == PURGED
    message = client.get(topic)
    assert message is not None
    assert message.body == b"new"


def test_an_asynchronous_client_creates_and_purges(cluster: Embedded, topic: str) -> None:
    async def run() -> None:
        async with cluster.async_client(f"a{next(names)}") as client:
            assert (await client.create_topic(topic, keep="ever")).keep == "ever"
            await client.put(topic, b"x")
            assert await client.purge_topic(topic) == Purged(topic, 1, 0)

    asyncio.run(run())


# topics_auto = false


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Client]]:
    """Run a proxy and a server where only an operator creates topics; yield a function that opens a client."""
    directory = tmp_path_factory.mktemp("strict")
    bind, one = "tcp://127.0.0.1:0", directory / "p1"
    proxy = ProxyProcess(ProxySettings(id="p1", bind=bind, directory=one, startup_wait_seconds=0, topics_auto=False))
    proxy.start()
    address = proxy.servers or proxy.bind
    server = ServerProcess(ServerSettings(id="s1", proxies=(address,), directory=directory / "s1", topics_auto=False))
    server.start()
    threads = [threading.Thread(target=process.run) for process in (proxy, server)]
    for thread in threads:
        thread.start()
    yield lambda: Client(f"strict{next(names)}", proxies=[proxy.bind], directory=directory / f"c{next(names)}")
    for process, thread in zip((server, proxy), reversed(threads), strict=True):
        process.stop()
        thread.join()
        process.close()


def test_a_put_to_a_topic_that_does_not_exist_is_kept_and_sent_when_the_topic_is_created(
    strict: Callable[[], Client], topic: str
) -> None:
    with strict() as client:
        client.create_topic(f"{topic}orders")
        wrong = f"{topic}ordres"
        with pytest.raises(NotAllowed) as error:
            client.put(wrong, b"kept")
        assert str(error.value) == (
            f"topic '{wrong}' does not exist; did you mean '{topic}orders'? create it with `pubsub topic create"
            f" {wrong}`; the put is kept: pubsub client {client.name} flush sends it then,"
            f" and pubsub client {client.name} discard {wrong} drops it"
        )
        assert error.value.exit_code == 22
        client.create_topic(wrong, keep="ever")
        client.flush()
        assert client.purge_topic(wrong) == Purged(wrong, 1, 0)


def test_a_put_that_was_refused_can_be_discarded(strict: Callable[[], Client], topic: str) -> None:
    with strict() as client:
        with pytest.raises(NotAllowed):
            client.put(topic, b"x")
        assert client.discard(topic) == 1
        client.create_topic(topic, keep="ever")
        client.put(topic, b"y")
        assert client.purge_topic(topic).records == 1


def test_a_subscribe_to_a_topic_that_does_not_exist_is_refused_and_counts_when_it_is_created(
    strict: Callable[[], Client], topic: str
) -> None:
    with strict() as client, strict() as publisher:
        with pytest.raises(NotAllowed, match=f"topic '{topic}' does not exist"):
            client.subscribe(topic)
        client.create_topic(topic)
        client.subscribe(topic)
        publisher.put(topic, b"x")
        message = client.get(topic)
        assert message is not None
        assert message.body == b"x"


def test_settings_of_a_topic_that_does_not_exist_are_not_changed(strict: Callable[[], Client], topic: str) -> None:
    with strict() as client:
        with pytest.raises(NotAllowed, match="does not exist"):
            client.configure(topic, keep="1d")
        assert client.settings_of(topic).version == ""
