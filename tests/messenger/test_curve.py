"""Messengers with keys: accepted and refused peers, and the settings refused before any socket is open."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
import zmq

from pubsub.errors import ConfigurationError
from pubsub.messenger import CurveClient, CurveServer, Messenger
from pubsub.security.access import Access
from pubsub.security.authorized import parse
from pubsub.security.keys import format_public
from pubsub.security.pairs import new_pair

ALICE, BANK, STRANGER = new_pair(), new_pair(), new_pair()
RULES = f"client alice {format_public(ALICE.public)} put=*\n"
DOOR = CurveServer(BANK, "clients")


@pytest.fixture
def access() -> Access:
    return Access(parse(RULES.encode()))


@pytest.fixture
def bank(access: Access) -> Iterator[Messenger]:
    with Messenger(zap=access.zap) as messenger:
        yield messenger


def ask(messenger: Messenger, endpoint: str, curve: CurveClient | None, seconds: float = 10.0) -> list[bytes]:
    """What is answered within some seconds."""
    answers: list[bytes] = []
    peer = messenger.connect(endpoint, curve=curve)
    messenger.send(peer, b"12.50", lambda _, contents, __: answers.append(bytes(contents)))
    messenger.wait(lambda: bool(answers), time.monotonic() + seconds)
    return answers


def pay(bank: Messenger, endpoint: str = "tcp://127.0.0.1:0", **named: object) -> str:
    return bank.listen(endpoint, lambda request: request.reply(b"paid " + request.contents), **named)  # type: ignore[arg-type]


def test_an_authorized_client_is_answered(bank, access):
    with Messenger() as alice:
        assert ask(alice, pay(bank, curve=DOOR), CurveClient(ALICE, (BANK.public,))) == [b"paid 12.50"]
    assert access.counters == {"handshakes_entered": 1}


def test_an_ipc_address_requires_keys_too(bank, access, tmp_path):
    endpoint = f"ipc://{tmp_path}/bank"
    with Messenger() as alice, Messenger() as stranger:
        assert ask(alice, pay(bank, endpoint, curve=DOOR), CurveClient(ALICE, (BANK.public,))) == [b"paid 12.50"]
        assert ask(stranger, endpoint, CurveClient(STRANGER, (BANK.public,)), 0.3) == []


def test_a_client_within_the_process_needs_no_keys(access):
    context = zmq.Context()
    with Messenger(context, zap=access.zap) as bank, Messenger(context) as customer:
        assert ask(customer, pay(bank, "inproc://bank", curve=DOOR), CurveClient(ALICE, (BANK.public,))) == [
            b"paid 12.50"
        ]
    context.term()
    assert access.counters == {}


@pytest.mark.parametrize(
    "curve",
    [None, CurveClient(STRANGER, (BANK.public,)), CurveClient(ALICE, (STRANGER.public,))],
    ids=["no key", "a key that nobody authorized", "another key expected"],
)
def test_an_unauthorized_client_is_not_answered(bank, access, curve):
    endpoint = pay(bank, curve=DOOR)
    with Messenger() as customer:
        assert ask(customer, endpoint, curve, 0.3) == []
    assert access.counters["handshakes_entered"] == 0
    with Messenger() as alice:  # The door was open all the time.
        assert ask(alice, endpoint, CurveClient(ALICE, (BANK.public,))) == [b"paid 12.50"]


def test_a_client_with_keys_does_not_speak_to_a_server_without(access):
    with Messenger() as bank, Messenger() as alice:
        heard = []
        endpoint = bank.listen("tcp://127.0.0.1:0", lambda request: heard.append(request.contents))
        assert ask(alice, endpoint, CurveClient(ALICE, (BANK.public,)), 0.3) == []
        assert heard == []


@pytest.mark.parametrize("endpoint", ["tcp://*:0", "tcp://0.0.0.0:0", "tcp://[::]:0"])
def test_a_public_address_without_keys_is_refused(endpoint):
    with Messenger() as bank:
        with pytest.raises(ConfigurationError, match="has no keys and can be reached by other hosts") as refused:
            pay(bank, endpoint)
        assert "\n" not in str(refused.value)


def test_a_public_address_with_insecure_or_keys_is_opened(bank):
    for named in ({"insecure": True}, {"curve": DOOR}):
        assert pay(bank, "tcp://0.0.0.0:0", **named).startswith("tcp://0.0.0.0:")


def test_a_server_with_keys_needs_a_zap_handler():
    with Messenger() as bank, pytest.raises(ConfigurationError, match="no ZAP handler accepts any"):
        pay(bank, curve=DOOR)


def test_another_messenger_of_the_context_may_be_the_zap_handler(access):
    context = zmq.Context()
    with Messenger(context, zap=access.zap) as zap_handler, Messenger(context) as bank, Messenger() as alice:
        pay(zap_handler)  # Somebody drives it.
        assert ask(alice, pay(bank, curve=DOOR), CurveClient(ALICE, (BANK.public,))) == [b"paid 12.50"]
        with pytest.raises(ConfigurationError, match="already has a ZAP handler"):
            Messenger(context, zap=access.zap)
    context.term()


def test_a_zap_handler_that_raises_accepts_nobody_and_keeps_running(access, caplog):
    answers = [ZeroDivisionError("the user's own mistake")]

    def zap(question):
        if answers:
            raise answers.pop()
        return access.zap(question)

    with caplog.at_level(logging.ERROR), Messenger(zap=zap) as bank, Messenger() as alice, Messenger() as later:
        endpoint = pay(bank, curve=DOOR)
        assert ask(alice, endpoint, CurveClient(ALICE, (BANK.public,)), 0.3) == []
        assert bank.counters.callback_errors == 1
        assert ask(later, endpoint, CurveClient(ALICE, (BANK.public,))) == [b"paid 12.50"]
    assert "the user's own mistake" in caplog.text


def test_the_repr_of_keys_shows_no_secret():
    text = repr([CurveClient(ALICE, (BANK.public,)), DOOR])
    assert repr(ALICE.secret) not in text
    assert repr(BANK.secret) not in text
