"""Dead letters go to their handler again, to another topic, or away: each once, also beside the running client."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pubsub import Reject
from pubsub.client import Client, Message, Transaction
from pubsub.client.core import waiting as core
from pubsub.client.core.changes import DeadLettered
from pubsub.client.flows import redriving
from pubsub.client.storage import letter_requests
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, NotSubscribed, StorageError, TooLarge
from tests.cli.standbys import pubsub
from tests.client.opened import PATIENCE, kill, names

LOG = "a" * 16


def reject(message: Message, transaction: Transaction) -> None:
    raise Reject(f"no {message.body.decode()}")


class Accepting:
    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bytes, int]] = []

    def __call__(self, message: Message, transaction: Transaction) -> None:
        self.seen.append((message.body, message.key, message.attempts))


@pytest.fixture
def name() -> str:
    return f"client{next(names)}"


@pytest.fixture
def client(cluster: Embedded, name: str) -> Iterator[Client]:
    with cluster.client(name) as made:
        yield made


def rejected(client: Client, topic: str, *bodies: bytes) -> list[str]:
    """Have messages rejected, and return their IDs."""
    client.subscribe(topic)
    for body in bodies:
        client.put(topic, body, key=b"k", headers={"h": b"v"})
    while len(client.dead_letters(topic)) < len(bodies):
        client.process(topic, reject, timeout=PATIENCE)
    return [letter.first for letter in client.dead_letters(topic)]


def test_a_redriven_letter_goes_to_the_handler_with_no_attempts_and_is_no_letter_any_more(
    client: Client, topic: str
) -> None:
    first, second = rejected(client, topic, b"a", b"b")
    handler = Accepting()
    assert client.redrive(first) == 1
    assert [letter.first for letter in client.dead_letters()] == [second]
    assert client.process(topic, handler, timeout=PATIENCE) == 1
    assert handler.seen == [(b"a", b"k", 1)]
    assert client.process(topic, handler, timeout=0.1) == 0
    with pytest.raises(CallerError, match="has no dead letter"):
        client.redrive(first)


def test_only_the_subscriber_that_failed_gets_a_redriven_letter(cluster: Embedded, client: Client, topic: str) -> None:
    with cluster.client(f"client{next(names)}") as other:
        other.subscribe(topic)
        rejected(client, topic, b"a")
        assert other.get(topic, timeout=PATIENCE) is not None
        assert client.redrive("all") == 1
        assert client.process(topic, Accepting(), timeout=PATIENCE) == 1
        assert other.get(topic, timeout=0.2) is None


def test_a_kill_after_the_redrive_leaves_the_message_in_one_place(cluster: Embedded, topic: str, name: str) -> None:
    client = cluster.client(name)
    rejected(client, topic, b"a")
    client.redrive("all")
    kill(client)
    with cluster.client(name) as client:
        assert client.dead_letters() == []
        handler = Accepting()
        assert client.process(topic, handler, timeout=PATIENCE) == 1
        assert handler.seen == [(b"a", b"k", 1)]


def test_all_takes_those_of_a_topic_and_since_a_time_and_leaves_losses(client: Client, topic: str) -> None:
    rejected(client, topic, b"a")
    loss = DeadLettered(topic, f"{LOG}.1", f"{LOG}.2", "", 0, 0, None, "lost", 0, time.time())
    client._session.store.commit([loss])
    hour = timedelta(hours=1)
    assert client.redrive("all", since=datetime.now(UTC) + hour) == 0
    assert client.redrive("all", topic=topic + "other") == 0
    assert client.redrive("all", topic=topic, since=datetime.now(UTC) - hour) == 1
    assert [letter.body for letter in client.dead_letters()] == [None]
    with pytest.raises(CallerError, match="no dead letter"):
        client.redrive(f"{LOG}.1")


def test_a_letter_of_a_topic_without_a_subscription_stays(client: Client, topic: str) -> None:
    (first,) = rejected(client, topic, b"a")
    client.unsubscribe(topic)
    assert client.redrive("all") == 0
    with pytest.raises(NotSubscribed):
        client.redrive(first)
    assert len(client.dead_letters()) == 1


def test_a_redrive_takes_what_there_is_room_for(client: Client, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "WAITING_MAX", 2)
    rejected(client, topic, b"a", b"b", b"c")
    assert client.redrive("all") == 2
    with pytest.raises(TooLarge, match="WAITING_MAX"):
        client.redrive("all")
    handler = Accepting()
    while len(handler.seen) < 2:
        client.process(topic, handler, timeout=PATIENCE)
    assert client.redrive("all") == 1
    assert client.process(topic, handler, timeout=PATIENCE) == 1
    assert [body for body, _, _ in handler.seen] == [b"a", b"b", b"c"]


def test_a_redrive_keeps_the_limit_of_bytes_also_if_nothing_waits(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "WAITING_BYTES_MAX", 4)
    rejected(client, topic, b"aaaaaaaa", b"b")
    assert client.redrive("all") == 1, "one may always wait, however large"
    with pytest.raises(TooLarge, match="WAITING_BYTES_MAX"):
        client.redrive("all")
    assert client.process(topic, Accepting(), timeout=PATIENCE) == 1
    assert client.redrive("all") == 1


def test_letters_are_put_to_another_topic_with_key_and_headers(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redriving, "TOGETHER", 2)
    client.subscribe(topic + "to")
    rejected(client, topic, b"a", b"b", b"c")
    assert client.redrive("all", to=topic + "to") == 3
    assert client.dead_letters() == []
    found = [client.get(topic + "to", timeout=PATIENCE) for _ in range(3)]
    assert [(one.body, one.key, one.headers) for one in found if one] == [
        (body, b"k", {"h": b"v"}) for body in (b"a", b"b", b"c")
    ]
    assert client.process(topic, reject, timeout=0.1) == 0


def test_old_letters_are_purged_and_a_loss_that_was_not_raised_stays(client: Client, topic: str) -> None:
    rejected(client, topic, b"a", b"b")
    loss = DeadLettered(topic, f"{LOG}.1", f"{LOG}.2", "", 0, 0, None, "lost", 0, time.time() - 10)
    client._session.store.commit([loss])
    assert client.purge_dead_letters(timedelta(hours=1)) == 0
    assert client.purge_dead_letters(timedelta(0), topic=topic + "other") == 0
    assert client.purge_dead_letters(timedelta(0)) == 2
    assert [letter.body for letter in client.dead_letters()] == [None]
    with client.transaction() as transaction:
        assert transaction.execute("select count(*) from pubsub_letters_beside").get == 0


def test_letters_are_listed_without_bodies(client: Client, topic: str) -> None:
    rejected(client, topic, b"a")
    assert [letter.body for letter in client.dead_letters(bodies=False)] == [b""]
    assert [letter.body for letter in client.dead_letters()] == [b"a"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda client: client.redrive(5), "message IDs"),
        (lambda client: client.redrive(b"all"), "message IDs"),
        (lambda client: client.redrive([]), "at least one"),
        (lambda client: client.redrive([5]), "as text"),
        (lambda client: client.redrive("all", since=5.0), "since is a datetime with a time zone"),
        (lambda client: client.redrive("all", since=datetime(2026, 1, 1)), "since is a datetime"),
        (lambda client: client.purge_dead_letters(5), "age is a timedelta"),
        (lambda client: client.purge_dead_letters(timedelta(-1)), "age is a timedelta"),
        (lambda client: client.dead_letters(bodies="yes"), "bodies"),
        (lambda client: client.redrive("all", to="a b"), "a b"),
    ],
)
def test_other_arguments_are_refused(client: Client, call: Any, text: str) -> None:
    with pytest.raises(Exception, match=text) as caught:
        call(client)
    assert isinstance(caught.value, CallerError)


# The command


@contextmanager
def processing(client: Client, topic: str, handler: Any) -> Iterator[None]:
    """Process on a thread until the end of the block."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            with suppress(ValueError):
                client.process(topic, handler, timeout=0.2)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_the_command_redrives_and_purges_where_no_process_runs(service: str, tmp_path: Path, topic: str) -> None:
    where = ("--dir", tmp_path, "--proxy", service)
    with Client("c", proxies=[service], directory=tmp_path) as client:
        first, _ = rejected(client, topic, b"a" * 300, b"b")
    assert "a" * 300 not in pubsub("client", "c", "dead-letters", *where).stdout.replace("\n", "")
    found = pubsub("client", "c", "dead-letters", "--redrive", first, "--json", *where)
    assert (found.returncode, json.loads(found.stdout)) == (0, {"client": "c", "redriven": 1}), found.stderr
    found = pubsub("client", "c", "dead-letters", "--redrive", "all", "--to", topic + "to", *where)
    assert (found.returncode, found.stdout) == (0, "redriven 1 dead letter of c\n"), found.stderr
    with Client("c", proxies=[service], directory=tmp_path) as client:
        handler = Accepting()
        assert client.process(topic, handler, timeout=PATIENCE) == 1
        rejected(client, topic, b"c")
    found = pubsub("client", "c", "dead-letters", "--purge", "0s", "--json", *where)
    assert json.loads(found.stdout) == {"client": "c", "purged": 1}


def test_the_command_redrives_beside_the_running_client(cluster: Embedded, tmp_path: Path, topic: str) -> None:
    with cluster.client("c", directory=tmp_path) as client:
        first, second = rejected(client, topic, b"a", b"b")
        handler = Accepting()
        with processing(client, topic, handler):
            found = pubsub("client", "c", "dead-letters", "--redrive", first, "--dir", tmp_path)
            assert (found.returncode, found.stdout) == (0, "redriven 1 dead letter of c\n"), found.stderr
            again = pubsub("client", "c", "dead-letters", "--redrive", first, "--dir", tmp_path)
            assert (again.returncode, "has no dead letter" in again.stderr) == (2, True), again.stderr
            purged = pubsub("client", "c", "dead-letters", "--purge", "0s", "--dir", tmp_path)
            assert (purged.returncode, purged.stdout) == (0, "purged 1 dead letter of c\n"), purged.stderr
        assert (handler.seen, client.dead_letters()) == ([(b"a", b"k", 1)], [])
        assert second
    assert not list(tmp_path.glob("c.requests/*"))


def test_a_request_that_no_client_takes_up_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_requests, "ANSWER_SECONDS", 0.05)
    state = tmp_path / "c.db"
    assert letter_requests.ask(state, {"redrive": "all"}) is None
    assert letter_requests.waiting(tmp_path / "c.requests") == []


def test_a_request_that_is_taken_up_and_not_answered_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_requests, "ANSWER_SECONDS", 0.2)
    folder = letter_requests.folder_of(tmp_path / "c.db")

    def take_up() -> None:
        while not (found := letter_requests.waiting(folder)):
            time.sleep(0.001)
        letter_requests.take_up(found[0])

    thread = threading.Thread(target=take_up)
    thread.start()
    with pytest.raises(StorageError, match="did not answer"):
        letter_requests.ask(tmp_path / "c.db", {"redrive": "all"})
    thread.join()


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({}, "malformed"),
        ({"purge": "x"}, "malformed"),
        ({"redrive": ["x"]}, "has no dead letter"),
        ({"redrive": "all", "since": 1e300}, "malformed"),
    ],
)
def test_a_bad_request_is_answered_with_an_error(
    cluster: Embedded, tmp_path: Path, topic: str, request_: dict[str, Any], text: str
) -> None:
    with cluster.client("c", directory=tmp_path) as client:
        client.subscribe(topic)
        with processing(client, topic, Accepting()):
            found = letter_requests.ask(Path(client.path), request_)
    assert found is not None
    assert text in found["error"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--purge", "30"), "an age such as"),
        (("--purge", "1d", "--redrive", "all"), "two commands"),
        (("--to", "t"), "go with --redrive"),
        (("--redrive", "all", "--redrive", "x"), "stands alone"),
        (("--redrive", "all", "--since", "2026-01-01"), "a time with its zone"),
        (("--redrive", "all", "--since", "soon"), "an age such as"),
    ],
)
def test_a_mistaken_command_line_is_one_line(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    found = pubsub("client", "c", "dead-letters", *words, "--dir", tmp_path)
    assert (found.returncode, text in found.stderr, found.stderr.count("\n")) == (2, True, 1), found.stderr
