"""`pubsub topic unsubscribe` with a pattern: an operator ends the pattern of a client that will not return."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from pubsub import Client
from pubsub.cli import main
from pubsub.cli.operating import Operator
from pubsub.cli.unsubscribing import end_pattern, find_ending
from pubsub.client.requests import Proxies
from pubsub.config.settings import ClientSettings
from pubsub.errors import DataLoss, NotNow, Superseded
from tests.faults.cluster import Cluster, until

numbers = count(1)
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.run(2, 1)


@pytest.fixture
def family() -> str:
    return f"f{next(numbers)}"


@pytest.fixture
def command(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["topic", "unsubscribe", *words, *(f"--proxy={one}" for one in cluster.addresses)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def operator(cluster: Cluster) -> Iterator[Operator]:
    with Proxies.of(ClientSettings(proxies=tuple(cluster.addresses))) as proxies:
        yield Operator(proxies, 5.0, 30.0)


@pytest.fixture
def shop(cluster: Cluster) -> Iterator[Client]:
    with cluster.client(f"shop{next(numbers)}") as opened:
        yield opened


def all_proxies_list(operator: Operator, topic: str) -> bool:
    return all(topic in {row["topic"] for row in report["topics"]} for report in operator.look().answered.values())


def test_the_pattern_of_a_client_that_is_away_ends_with_all_that_waits(
    cluster: Cluster, shop: Client, command: Command, operator: Operator, family: str
) -> None:
    name, pattern = f"away{family}", f"{family}.>"
    with cluster.client(name) as client:
        client.subscribe(pattern)
        shop.put(f"{family}.joined", b"1")
        assert client.get(pattern, timeout=20.0) is not None
        shop.put(f"{family}.joined", b"2")
    shop.put(f"{family}.later", b"3")  # The client has not joined this topic.
    until(lambda: all_proxies_list(operator, f"{family}.joined"), "each proxy was told of the topic")

    code, _, text = command(pattern, "--subscriber", name)
    assert code != 0
    assert f"The pattern {pattern} of {name} ends, with its subscriptions to " in text
    found: dict[str, Any] = json.loads(command(pattern, "--subscriber", name, "--yes", "--json")[1])
    assert (found["topic"], found["subscriber"], found["topics"]) == (pattern, name, [f"{family}.joined"])
    assert found["given_up"] >= 1

    view = operator.look(pattern)
    assert [row["on"] for report in view.answered.values() for row in report["patterns"]] == [False, False]
    assert not find_ending(operator, pattern, name).waiting  # A repeat finds it done.
    with cluster.client(name) as client:
        with pytest.raises(Superseded, match="has ended the pattern; to continue, subscribe again"):
            client.get(pattern, timeout=20.0)
        client.subscribe(pattern)
        shop.put(f"{family}.later", b"new")
        message = client.get(pattern, timeout=20.0)
        while message is not None and message.body != b"new":  # Messages as young as the bound on skew may come.
            message = client.get(pattern, timeout=20.0)
        assert message is not None


def test_a_client_that_subscribes_again_at_its_start_is_told_of_the_loss(
    cluster: Cluster, shop: Client, operator: Operator, family: str
) -> None:
    name, pattern, topic = f"again{family}", f"{family}.*", f"{family}.a"
    with cluster.client(name) as client:
        client.subscribe(pattern)
        shop.put(topic, b"1")
        assert client.get(pattern, timeout=20.0) is not None
    shop.put(topic, b"waits")
    assert end_pattern(operator, find_ending(operator, pattern, name)) == [topic]
    with cluster.client(name) as client:
        client.subscribe(pattern)  # One call goes above the number of the end.
        with pytest.raises(DataLoss, match="was ended elsewhere"):
            client.get(pattern, timeout=20.0)
        shop.put(topic, b"2")
        found = [client.get(pattern, timeout=20.0)]
        while found[-1] is not None and found[-1].body != b"2":
            found.append(client.get(pattern, timeout=20.0))
        assert found[-1] is not None


def test_a_client_that_waits_is_told_and_keeps_no_topic(
    cluster: Cluster, shop: Client, operator: Operator, family: str
) -> None:
    name, pattern, topic = f"waits{family}", f"{family}.*", f"{family}.a"
    with cluster.client(name) as client, ThreadPoolExecutor(1) as pool:
        client.subscribe(pattern)
        shop.put(topic, b"1")
        assert client.get(pattern, timeout=20.0) is not None
        waiting = pool.submit(client.get, pattern, 60.0)
        assert end_pattern(operator, find_ending(operator, pattern, name)) in ([], [topic])
        assert isinstance(waiting.exception(60.0), Superseded)
        until(lambda: name not in subscribers(operator, topic), "it has no subscription")


def test_topics_of_another_pattern_of_the_client_stay(
    cluster: Cluster, shop: Client, operator: Operator, family: str
) -> None:
    name = f"both{family}"
    with cluster.client(name) as client:
        client.subscribe(f"{family}.*")
        client.subscribe(f"*.both{family}")
        for topic in (f"{family}.only", f"{family}.both{family}"):
            shop.put(topic, b"1")
        assert {client.get(f"{family}.*", timeout=20.0).topic for _ in range(2)} == {  # type: ignore[union-attr]
            f"{family}.only", f"{family}.both{family}",
        }  # fmt: skip
    ended = end_pattern(operator, find_ending(operator, f"{family}.*", name))
    assert ended == [f"{family}.only"]
    shop.put(f"{family}.both{family}", b"2")
    with cluster.client(name) as client:
        message = client.get(f"*.both{family}", timeout=20.0)
        assert message is not None
        assert message.body == b"2"


def test_an_end_that_the_client_has_overtaken_changes_nothing(
    cluster: Cluster, operator: Operator, family: str
) -> None:
    name, pattern = f"fast{family}", f"{family}.*"
    with cluster.client(name) as client:
        client.subscribe(pattern)
        ending = find_ending(operator, pattern, name)
        client.subscribe(pattern, fresh=True)
        with pytest.raises(NotNow, match="anew"):
            end_pattern(operator, ending)
        assert [row["on"] for row in rows(operator, pattern)] == [True, True]  # Of two proxies.


def test_a_pattern_that_nobody_has_is_reported_on_one_line(command: Command, family: str) -> None:
    code, out, text = command(f"{family}.*", "--subscriber", "nobody", "--yes")
    assert (code, out, text.count("\n")) == (13, "", 1)
    assert f"client nobody has no pattern {family}.*; pubsub status lists the patterns" in text


def rows(operator: Operator, pattern: str) -> list[dict[str, Any]]:
    return [row for report in operator.look(pattern).answered.values() for row in report["patterns"]]


def subscribers(operator: Operator, topic: str) -> dict[str, Any]:
    view = operator.look(topic)
    return dict(operator.server_report(view.owner(topic), view, topic)["topics"][topic]["subscribers"])
