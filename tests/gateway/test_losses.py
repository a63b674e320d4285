"""Dead letters of HTTP subscribers: their undelivered messages, in the gateway and on the page, and no other's."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pubsub.client.storage.tables import DEAD_LETTER_METADATA, DELETIONS, TABLES, UNTOLD
from pubsub.errors import DataLoss
from pubsub.gateway import losses
from pubsub.gateway.limits import LOSSES_MAX
from pubsub.gateway.mailbox import Mail, Mailbox
from pubsub.gateway.webhooks.dead_letters import as_json
from tests.faults.cluster import Cluster, until
from tests.gateway.browser import DRIVER, REQUIRED, Browser
from tests.gateway.serving import Gateway
from tests.gateway.test_mailbox_rows import File

in_browser = pytest.mark.skipif(
    DRIVER is None and not REQUIRED, reason="no chromedriver is here: dead letters were not tried in a browser"
)
ADD = (
    "INSERT INTO pubsub_dead_letters (topic, first, last, publisher, counter, stamp, body, error, attempts, at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def lost(topic: str, number: int) -> tuple[Any, ...]:
    return topic, f"a.{number}0", f"a.{number}9", "", 0, 0, None, f"disk {number} is gone", 0, 1_700_000_000.5


class Client(File):
    """A client's file with the client's own tables, of which a topic has lost something whenever it is asked."""

    def __init__(self) -> None:
        super().__init__()
        for table in (TABLES[-1], UNTOLD, DELETIONS, DEAD_LETTER_METADATA):
            self.db.execute(table)

    async def hand_on(self, topic: str, *_: Any) -> int:
        self.db.execute(ADD, lost(topic, 1))
        raise DataLoss(topic, "a.10", "a.19", "disk 1 is gone")

    def numbers(self, topic: str) -> list[int]:
        return [
            row[0] for row in self.query("SELECT id FROM pubsub_dead_letters WHERE topic = ? ORDER BY id", (topic,))
        ]


@pytest.fixture
def client() -> Client:
    return Client()


def test_pages_are_by_number_and_name_the_following_page(client: Client) -> None:
    for number in range(5):
        client.db.execute(ADD, lost("other" if number == 2 else "t", number))
    first, following = losses.page(client, "t", 0, 2)  # type: ignore[arg-type]
    assert ([row[0] for row in first], following) == ([1, 2], 2)
    second, following = losses.page(client, "t", 2, 2)  # type: ignore[arg-type]
    assert ([row[0] for row in second], following) == ([4, 5], None)
    assert losses.page(client, "t", 5, 2) == ([], None)  # type: ignore[arg-type]
    assert losses.count(client, "t") == 4  # type: ignore[arg-type]


def test_a_dead_letter_has_its_key_and_headers_and_large_ones_end_a_page(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "DEAD_LETTERS_BYTES_MAX", 10)
    for number in range(3):
        client.db.execute(ADD, ("t", f"a.{number}", f"a.{number}", "p", number, 7, b"x" * 8, "it failed", 5, 1.0))
    client.db.execute("INSERT INTO pubsub_letters_beside VALUES (1, x'6b', x'')")
    ((row,), following) = losses.page(client, "t", 0, 10)  # type: ignore[arg-type]
    assert row == (1, "a.0", "p", 0, 7, b"k", b"x" * 8, "it failed", 5, 1.0, b"", 0, 0, "")
    assert following == 1


def test_the_newest_and_the_unreported_dead_letters_stay(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "LOSSES_MAX", 3)
    for number in range(4):
        client.db.execute(ADD, lost("t", number))
    client.db.execute(ADD, lost("other", 1))
    client.db.execute("INSERT INTO pubsub_untold VALUES (1, 't')")
    client.db.execute("INSERT INTO pubsub_letters_beside VALUES (2, x'', x'')")
    assert asyncio.run(Mailbox(client, "t").take(1, 1.0)) == 1  # type: ignore[arg-type]
    assert client.numbers("t") == [1, 3, 4, 6]
    assert client.numbers("other") == [5]
    assert client.query("SELECT id FROM pubsub_letters_beside") == []
    assert LOSSES_MAX == 10_000


def test_forgetting_a_topic_leaves_other_topics_unchanged(client: Client) -> None:
    for topic in ("t", "other"):
        client.db.execute(ADD, lost(topic, 1))
        client.db.execute("INSERT INTO pubsub_untold VALUES (last_insert_rowid(), ?)", (topic,))
    client.write(lambda transaction: losses.forget(transaction, "t"))
    assert (client.numbers("t"), client.numbers("other")) == ([], [2])
    assert client.query("SELECT topic FROM pubsub_untold") == [("other",)]


def test_a_deletion_that_was_not_raised_is_forgotten_with_its_topic(client: Client) -> None:
    for topic in ("t", "other"):
        client.db.execute("INSERT INTO pubsub_deletions (topic, reason) VALUES (?, 'deleted')", (topic,))
    client.write(lambda transaction: losses.forget(transaction, "t"))
    assert client.query("SELECT topic FROM pubsub_deletions") == [("other",)]


def test_the_losses_of_a_pattern_are_those_of_its_topics_and_name_them(client: Client) -> None:
    for topic in ("a.b", "a.c", "a.b.c", "b.b"):
        client.db.execute(ADD, lost(topic, 1))
        client.db.execute("INSERT INTO pubsub_untold VALUES (last_insert_rowid(), ?)", (topic,))
    assert losses.count(client, "a.*") == 2  # type: ignore[arg-type]
    first, following = losses.page(client, "a.*", 0, 1)  # type: ignore[arg-type]
    second, end = losses.page(client, "a.*", following or 0, 5)  # type: ignore[arg-type]
    assert [Mail._make(row).source for row in (*first, *second)] == ["a.b", "a.c"]
    assert end is None
    shown = as_json(Mail._make(first[0]), beginnings=False)
    assert (shown.topic, shown.position) == ("a.b", "a.10..a.19")
    client.write(lambda transaction: losses.forget(transaction, "a.*"))
    assert [client.numbers(topic) for topic in ("a.b", "a.c", "a.b.c", "b.b")] == [[], [], [3], [4]]
    assert client.query("SELECT topic FROM pubsub_untold ORDER BY id") == [("a.b.c",), ("b.b",)]


def test_only_the_newest_losses_of_a_pattern_are_kept(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "LOSSES_MAX", 2)
    for topic in ("a.b", "a.c", "b", "a.b"):
        client.db.execute(ADD, lost(topic, 1))
    client.write(lambda transaction: losses.prune(transaction, "a.>"))
    assert [client.numbers(topic) for topic in ("a.b", "a.c", "b")] == [[4], [2], [3]]


@pytest.fixture(scope="module")
def losing(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway of a subscriber that three ranges were lost to, of which it was told."""
    directory: Path = tmp_path_factory.mktemp("losing") / "data"
    gateway = Gateway(cluster, directory)
    with gateway:
        for topic in ("losing", "shown"):
            gateway.subscribe(topic, "s")
            gateway.put(topic, b"x")
    with closing(sqlite3.connect(directory / "subscribers" / "http.s.db")) as db, db:
        db.executemany(ADD, [lost(topic, number) for topic in ("losing", "shown") for number in range(3)])
    with gateway:
        yield gateway


def dead_letters(gateway: Gateway, query: str = "") -> dict[str, Any]:
    answer = gateway.ask("GET", f"/topics/losing/subscribers/s/dead-letters{query}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.slow
def test_the_losses_of_a_subscriber_are_listed_until_it_is_removed(losing: Gateway) -> None:
    found = dead_letters(losing, "?max=2")
    assert found["dead_letters"][0] == {
        "id": "lost-a.00..a.09", "lost": "disk 0 is gone", "position": "a.00..a.09", "number": 1, "attempts": 0,
        "error": "disk 0 is gone", "failed_at": 1_700_000_000_500_000,
    }  # fmt: skip
    assert found["next"] == 2
    assert dead_letters(losing, "?max=2&after=2&beginnings=true")["next"] is None
    path = "/topics/losing/subscribers/s"
    assert losing.ask("GET", path).json()["dead_letters"] == 3
    for query in ("max=0", "after=x", "beginnings=1", "mxa=1"):
        assert losing.ask("GET", f"{path}/dead-letters?{query}").status_code == 400
    assert losing.ask("GET", "/topics/losing/subscribers/nobody/dead-letters").status_code == 404
    assert losing.ask("DELETE", path).status_code == 204
    losing.subscribe("losing", "s")
    assert dead_letters(losing) == {"dead_letters": [], "next": None}
    losing.put("losing", b"y")
    assert [message["body"] for message in losing.take("losing", "s", 1)] == ["y"]


@in_browser
@pytest.mark.slow
def test_the_page_shows_the_losses_of_a_subscriber(losing: Gateway, browser: Browser) -> None:
    browser.go(f"{losing.url}/#/topics/shown")
    until(lambda: "Dead letters" in browser.text("#subscribers"), "the subscriber has a link to them")
    browser.click("#subscribers a[data-key='letters subscribers s']")
    until(lambda: "lost: disk 2 is gone" in browser.text("#dead"), "what is lost is shown")
    assert browser.text("#whose") == "s"
    assert browser.complaints() == []
