"""A subscription that an operator ended: a program that subscribes again learns of the messages that it lost.

The rule is docs/explanation/get.md, G16.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from pubsub.cli import main
from pubsub.client import Client
from pubsub.errors import DataLoss, Superseded
from tests.client.opened import kill

_names = count(1)
PATIENCE = 20.0


Opener = Callable[..., Client]


@pytest.fixture
def opener(service: str, tmp_path: Path) -> Opener:
    """Opens a client by its name."""
    return lambda name, place="clients": Client(name, proxies=[service], directory=tmp_path / place)


@pytest.fixture
def topic() -> str:
    return f"ended{next(_names)}"


@pytest.fixture
def shop(opener: Opener) -> Iterator[Client]:
    with opener(f"shop{next(_names)}") as opened:
        yield opened


def end(service: str, topic: str, subscriber: str) -> None:
    """End a subscription as an operator does."""
    assert main(["topic", "unsubscribe", topic, "--subscriber", subscriber, "--yes", "--proxy", service]) == 0


def subscribed(opener: Opener, topic: str, shop: Client) -> str:
    """A client that has taken one message of two, and is closed."""
    name = f"bob{next(_names)}"
    with opener(name) as bob:
        bob.subscribe(topic)
        shop.put_many(topic, [b"1", b"2"])
        assert bob.get(topic, timeout=PATIENCE).body == b"1"
    return name


def read_on(client: Client, topic: str) -> None:
    """Take what is there, until the client objects."""
    while client.get(topic, timeout=PATIENCE) is not None:
        pass


def test_a_program_that_subscribes_again_is_told_once_of_the_messages_that_are_lost(
    opener: Opener, service: str, topic: str, shop: Client, caplog: pytest.LogCaptureFixture
) -> None:
    name = subscribed(opener, topic, shop)
    end(service, topic, name)
    shop.put(topic, b"3")
    with opener(name) as bob:
        bob.subscribe(topic, timeout=PATIENCE)
        (record,) = [one for one in caplog.records if one.levelno == logging.WARNING and name in one.getMessage()]
        assert (
            "the subscription was ended elsewhere; messages that waited behind this place were given up"
            in record.getMessage()
        )
        shop.put(topic, b"4")
        with pytest.raises(DataLoss, match="was ended elsewhere"):
            bob.get(topic, timeout=PATIENCE)
        assert bob.get(topic, timeout=PATIENCE).body == b"4"
        (letter,) = bob.dead_letters(topic)
        assert "ended elsewhere" in letter.error
        bob.subscribe(topic, timeout=PATIENCE)
        assert bob.get(topic, timeout=0) is None
        assert len(bob.dead_letters(topic)) == 1


def test_a_process_that_ends_before_it_was_told_is_told_after_its_start(
    opener: Opener, service: str, topic: str, shop: Client
) -> None:
    name = subscribed(opener, topic, shop)
    end(service, topic, name)
    bob = opener(name)
    bob.subscribe(topic, timeout=PATIENCE)
    kill(bob)
    with opener(name) as again, pytest.raises(DataLoss, match="was ended elsewhere"):
        again.process(topic, lambda message, transaction: None, timeout=PATIENCE)


def test_a_program_that_was_told_by_an_error_is_not_told_twice(
    opener: Opener, service: str, topic: str, shop: Client
) -> None:
    name = subscribed(opener, topic, shop)
    with opener(name) as bob:
        end(service, topic, name)
        with pytest.raises(Superseded, match="ended elsewhere"):
            read_on(bob, topic)
        bob.subscribe(topic, timeout=PATIENCE)
        shop.put(topic, b"3")
        assert bob.get(topic, timeout=PATIENCE).body == b"3"
        assert bob.dead_letters(topic) == []


def test_a_fresh_subscription_gives_up_its_messages_by_itself(
    opener: Opener, service: str, topic: str, shop: Client
) -> None:
    name = subscribed(opener, topic, shop)
    end(service, topic, name)
    with opener(name) as bob:
        bob.subscribe(topic, timeout=PATIENCE, fresh=True)
        shop.put(topic, b"3")
        assert bob.get(topic, timeout=PATIENCE).body == b"3"
        assert bob.dead_letters(topic) == []


def test_a_client_that_was_opened_elsewhere_takes_its_subscription_back_without_a_loss(
    opener: Opener, service: str, topic: str, shop: Client
) -> None:
    name = subscribed(opener, topic, shop)
    with opener(name, "elsewhere") as other:
        other.subscribe(topic, timeout=PATIENCE)
    with opener(name) as bob:
        bob.subscribe(topic, timeout=PATIENCE)
        assert bob.get(topic, timeout=PATIENCE).body == b"2"
        assert bob.dead_letters(topic) == []
