"""Settings of topics by a client, at a real proxy and a real server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from keyed import BOB, EVERYTHING, Keyed, keyed, line

from pubsub import embedded
from pubsub.client import Client, TopicSettings
from pubsub.client.requests import Proxies
from pubsub.client.topic_settings import ROUNDS, OtherSettings, change_settings, read_settings
from pubsub.embedded import Embedded
from pubsub.errors import (
    AfterFork,
    CallerError,
    DataLoss,
    InvalidName,
    NotAllowed,
    NotNow,
    Refused,
    Unavailable,
)
from pubsub.protocol.messages import Configure, Settings, Status
from pubsub.proxy import core as proxy_core
from tests.client.opened import eventually, names

OPERATOR = line("client", "alice", "put=*", "get=*", "operate")


def shown(found: TopicSettings) -> tuple[str, str, bool]:
    return found.keep, found.drop, found.conflict


def test_a_topic_that_does_not_exist_has_the_defaults(client: Client, topic: str) -> None:
    assert client.settings_of(topic) == TopicSettings(topic, "none", "never", "", False)


def test_a_change_is_in_force_when_it_returns_and_leaves_the_other_setting(client: Client, topic: str) -> None:
    made = client.configure(topic, keep="7d, 10GiB")
    assert shown(made) == ("7d,10GiB", "never", False)
    assert client.settings_of(topic) == made
    assert shown(client.configure(topic, drop="30d")) == ("7d,10GiB", "30d", False)
    assert shown(client.configure(topic, keep="")) == ("none", "30d", False)
    assert shown(client.configure(topic, keep="ever", drop="never")) == ("ever", "never", False)


def test_a_change_of_another_version_changes_nothing_and_has_the_settings_in_force(client: Client, topic: str) -> None:
    first = client.configure(topic, keep="1d", base="")
    second = client.configure(topic, keep="2d", base=first.version)
    for base in ("", first.version, "0123456789abcdef"):
        with pytest.raises(NotNow) as error:
            client.configure(topic, keep="3d", base=base)
        assert isinstance(error.value, OtherSettings)
        assert error.value.present == second
        assert f"version {second.version}: keep=2d drop=never" in str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(NotNow):
        client.configure(topic, drop="3d", base=first.version)
    assert client.settings_of(topic) == second


def test_two_clients_that_each_change_one_setting_at_once_both_succeed(cluster: Embedded, topic: str) -> None:
    opened = cluster.client(f"one{next(names)}"), cluster.client(f"other{next(names)}")
    with opened[0] as one, opened[1] as other, ThreadPoolExecutor(2) as pool:
        for number in range(1, ROUNDS):
            keep, drop = f"{number}d", f"{number + 50}d"
            calls = pool.submit(one.configure, topic, keep=keep), pool.submit(other.configure, topic, drop=drop)
            for call in calls:
                call.result()
            assert shown(one.settings_of(topic)) == (keep, drop, False)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"keep": "7 years"}, "keep is none, ever, latest, or amounts such as 7d, 10GiB"),
        ({"tombstones": "5m"}, "tombstones is an age such as 1d, at least 1h"),
        ({"drop": "100 records"}, "drop is never, an age such as 30d"),
        ({"keep": 7}, "keep is a text, not int"),
        ({"keep": "x" * 1000}, "keep is none, ever"),
    ],
)
def test_a_value_that_is_none_is_refused_before_anything_is_sent(
    client: Client, topic: str, values: dict[str, str], text: str
) -> None:
    with pytest.raises(CallerError) as error:
        client.configure(topic, **values)
    assert text in str(error.value)
    assert len(str(error.value)) < 300
    assert client.settings_of(topic).version == ""


def test_topics_without_settings_are_refused(client: Client) -> None:
    for call in (client.settings_of, client.configure):
        with pytest.raises(InvalidName):
            call("a topic")
        with pytest.raises(CallerError, match="belongs to a service"):
            call("$calls.echo")


def test_an_async_client_does_the_same(cluster: Embedded, topic: str) -> None:
    async def run() -> None:
        async with cluster.async_client(f"async{next(names)}") as client:
            assert (await client.settings_of(topic)).version == ""
            made = await client.configure(topic, keep="1d", drop="30d")
            assert await client.settings_of(topic) == made
            assert shown(made) == ("1d", "30d", False)
            with pytest.raises(NotNow):
                await client.configure(topic, keep="2d", base="")
        with pytest.raises(CallerError):
            await client.settings_of(topic)
        with pytest.raises(CallerError):
            await client.configure(topic, keep="2d")

    asyncio.run(run())


def test_a_closed_client_refuses(cluster: Embedded, topic: str) -> None:
    with cluster.client(f"closed{next(names)}") as client:
        pass
    for call in (lambda: client.settings_of(topic), lambda: client.configure(topic, keep="1d")):
        with pytest.raises(CallerError, match="closed"):
            call()


def test_a_forked_child_refuses_and_its_parent_continues(client: Client, topic: str) -> None:
    client.configure(topic, keep="1d")
    calls: tuple[Callable[[], object], ...] = (
        lambda: client.settings_of(topic),
        lambda: client.configure(topic, keep="2d"),
    )
    child = os.fork()
    if child == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except AfterFork:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(calls)
    assert client.settings_of(topic).keep == "1d"


def test_without_an_answer_the_time_limit_ends_a_call(tmp_path: Path, nowhere: str) -> None:
    with Client("alone", proxies=[nowhere], directory=tmp_path, timeout=0.2) as client:
        for call in (lambda: client.settings_of("t"), lambda: client.configure("t", keep="1d")):
            with pytest.raises(Unavailable):
                call()


# Earlier releases


@pytest.fixture
def old_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_core, "REQUESTS", proxy_core.REQUESTS - {"CONFIGURE", "SETTINGS"})


@pytest.mark.usefixtures("old_proxy")
def test_a_proxy_of_an_earlier_release_is_named_in_one_line(client: Client, topic: str) -> None:
    for call in (lambda: client.settings_of(topic), lambda: client.configure(topic, keep="1d")):
        with pytest.raises(Refused) as error:
            call()
        assert "upgrade" in str(error.value)
        assert "\n" not in str(error.value)
    client.put(topic, b"other requests go on")


class OldServer:
    """Answers as a server of an earlier release does to a request that it cannot read."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def ask(self, request: Configure | Settings) -> Status:
        raise Refused("configure", request.topic, self.reason)


@pytest.mark.parametrize(
    ("reason", "upgrade"),
    [("no message is named 'CONFIGURE'", True), ("no message is named 'SETTINGS'", True), ("keep is none", False)],
)
def test_a_server_of_an_earlier_release_is_told_from_another_refusal(reason: str, upgrade: bool) -> None:
    proxies = cast("Proxies", OldServer(reason))
    for call in (
        lambda: read_settings(proxies, "c", "t"),
        lambda: change_settings(proxies, "c", "t", {"keep": "1d", "drop": ""}, None),
    ):
        with pytest.raises(Refused) as error:
            call()
        assert error.value.reason.startswith(reason)
        assert ("upgrade them first" in error.value.reason) == upgrade


# Rights


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Keyed]:
    with keyed(tmp_path) as made:
        yield made


def test_a_change_needs_the_right_to_operate(locked: Keyed) -> None:
    with locked.client() as alice:
        with pytest.raises(NotAllowed) as error:
            alice.configure("orders", keep="1d")
        assert "needs operate" in str(error.value)
        assert "\n" not in str(error.value)
        assert alice.settings_of("orders").version == ""
        locked.authorize(OPERATOR, BOB)
        assert alice.configure("orders", keep="1d").keep == "1d"


def test_looking_needs_the_right_to_get_or_to_operate(locked: Keyed) -> None:
    locked.authorize(line("client", "alice", "put=*", "get=other"), BOB)
    with locked.client() as alice:
        with pytest.raises(NotAllowed) as error:
            alice.settings_of("orders")
        assert str(error.value) == (
            "client alice may not look at the settings of orders; its line in the file authorized needs get=orders"
        )
        assert alice.settings_of("other").version == ""
        locked.authorize(line("client", "alice", "operate"), BOB)
        alice.configure("orders", keep="1d", drop="")
        assert alice.configure("orders", drop="2d").keep == "1d"
        assert alice.settings_of("orders").drop == "2d"
        locked.authorize(EVERYTHING, BOB)
        assert alice.settings_of("orders").drop == "2d"


# What drop lets go


def test_a_loss_by_drop_says_so(tmp_path: Path) -> None:
    hold = {"skew_seconds": 0.0, "retention_hold_seconds": 3.5}
    with embedded(tmp_path, server=lambda settings: replace(settings, **hold)) as running:
        with running.client("alice") as alice:
            with running.client("bob") as bob:
                bob.subscribe("orders")
            alice.configure("orders", drop="1s")
            alice.put("orders", b"old")
            counters = running._processes[1].core.state.counters  # type: ignore[attr-defined]
            eventually(lambda: counters["batches_dropped"] == 1)
        with running.client("bob") as bob:
            with pytest.raises(DataLoss) as error:
                bob.get("orders", timeout=20.0)
            assert error.value.reason == "the topic's setting drop let them go before this client received them"
            (letter,) = bob.dead_letters("orders")
            assert letter.error == error.value.reason
