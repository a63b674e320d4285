"""Dead letters on a topic: each once, with its reason, kept without a subscriber."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pubsub import Reject
from pubsub.client import Client, Message, Transaction
from pubsub.client.core.changes import DeadLettered
from pubsub.client.core.letters import ERROR_BYTES_MAX, letter_headers
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import InvalidName, SettingRefused
from pubsub.protocol import encode_headers
from pubsub.protocol.names import check_new_topic, is_letters_topic, letters_topic
from tests.client.opened import PATIENCE, kill, names


def reject(message: Message, transaction: Transaction) -> None:
    raise Reject("no such customer")


@pytest.fixture
def name() -> str:
    return f"client{next(names)}"


def test_a_letter_is_put_once_with_its_reason_and_stays_in_the_table(cluster: Embedded, topic: str, name: str) -> None:
    client = cluster.client(name, dead_letters="topic")
    with cluster.client(f"client{next(names)}") as operator:
        operator.subscribe(letters_topic(name))
        client.subscribe(topic)
        client.put(topic, b"body", key=b"key", headers={"own": b"1", "error": b"mine"})
        assert client.process(topic, reject, timeout=PATIENCE) == 1
        kill(client)
        with cluster.client(name, dead_letters="topic") as again:
            again.flush()
            (letter,) = again.dead_letters()
        found = operator.get(letters_topic(name), timeout=PATIENCE)
        assert found is not None
        assert operator.get(letters_topic(name), timeout=0.2) is None
    assert (found.body, found.key) == (b"body", b"key")
    assert found.headers == {
        "own": b"1", "error": b"no such customer", "topic": topic.encode(), "id": letter.first.encode(),
        "publisher": letter.publisher.encode(), "counter": str(letter.counter).encode(),
        "stamp": str(letter.stamp).encode(), "attempts": b"1",
    }  # fmt: skip


def test_the_topic_keeps_letters_for_a_fortnight(cluster: Embedded, topic: str, name: str) -> None:
    with cluster.client(name, settings=ClientSettings(dead_letters="topic")) as client:
        client.subscribe(topic)
        client.put(topic, b"body")
        assert client.process(topic, reject, timeout=PATIENCE) == 1
        client.flush()
        assert client.settings_of(letters_topic(name)).keep == "14d"
        client.configure(letters_topic(name), keep="1d")
        assert client.settings_of(letters_topic(name)).keep == "1d"


def test_without_the_setting_no_letter_is_put(cluster: Embedded, topic: str, name: str) -> None:
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put(topic, b"body")
        assert client.process(topic, reject, timeout=PATIENCE) == 1
        assert letters_topic(name) not in client._session.core.outbox.chains


def test_a_letter_without_room_in_the_outbox_stays_in_the_table(cluster: Embedded, topic: str, name: str) -> None:
    settings = ClientSettings(dead_letters="topic", outbox_bytes_max=1024)
    with cluster.client(f"client{next(names)}") as writer, cluster.client(name, settings=settings) as client:
        client.subscribe(topic)
        writer.put(topic, b"x" * 2000)
        assert client.process(topic, reject, timeout=PATIENCE) == 1
        assert [letter.body for letter in client.dead_letters()] == [b"x" * 2000]
        assert client.unfinished(letters_topic(name)) == 0


def test_exactly_the_topics_of_letters_may_be_new_with_a_dollar() -> None:
    assert check_new_topic("$dead.billing") == "$dead.billing"
    for topic in ("$dead", "$dead.", "$dead..", "$dead.a/b", "$dead.a>", "$deads.a", "$other"):
        assert not is_letters_topic(topic)
        with pytest.raises(InvalidName):
            check_new_topic(topic)
    assert len(letters_topic("x" * 64)) <= 80


def letter(error: str = "e", headers: bytes = b"") -> DeadLettered:
    return DeadLettered("t", "a.1", "a.1", "p", 1, 2, b"body", error, 3, 4.0, b"", headers)


def test_own_headers_that_do_not_fit_and_the_rest_of_a_long_error_are_left_out() -> None:
    many = encode_headers({f"h{number}": b"" for number in range(12)})
    assert len(letter_headers(letter(headers=many))) == 7
    large = encode_headers({"h": b"x" * 7000})
    assert set(letter_headers(letter(headers=large))) >= {"h", "error"}
    assert "h" not in letter_headers(letter("y" * 5000, encode_headers({"h": b"x" * 7500})))
    assert len(letter_headers(letter("y" * 5000))["error"]) == ERROR_BYTES_MAX


@pytest.mark.parametrize("value", ["", "both", 1])
def test_another_value_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(SettingRefused, match="table or topic"):
        ClientSettings(dead_letters=value)
    with pytest.raises(Exception, match="table or topic"):
        Client("c", directory=tmp_path, dead_letters=value)
