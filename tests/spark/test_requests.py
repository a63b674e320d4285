"""The answers of the proxies to a task or a driver; a proxy with answers set by a test replaces them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pubsub.client.requests import Proxies
from pubsub.errors import NotAllowed
from pubsub.messenger import Messenger
from pubsub.protocol import Outcome, Publish, Read, Report, Status, decode, encode
from pubsub.protocol.messages import Get
from pubsub.spark.identity import Identity
from pubsub.spark.ranges import Topics

Answer = Callable[[Any], Status]


class Proxy:
    """Answers each request with what `answer` makes of it, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answer: Answer = lambda _: Status("p1", Outcome.DENIED, reason="right", body=b"no")
        self._messenger = Messenger()
        self.address = self._messenger.listen("tcp://127.0.0.1:0", self._take, idempotent=True)

    def _take(self, request: Any) -> None:
        self.asked.append(decode(request.contents, request.frames[0] if request.frames else None))
        head, body = encode(self.answer(self.asked[-1]))
        request.reply([head, body] if len(body) else [head])

    def close(self) -> None:
        self._messenger.close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


@pytest.fixture
def link(proxy: Proxy) -> Iterator[Proxies]:
    with Identity(client="etl").connect([proxy.address], 10.0) as made:
        yield made


def denies(why: str, sentence: bytes) -> Answer:
    return lambda _: Status("p1", Outcome.DENIED, reason=why, body=sentence)


AGAIN = "; then start the query again, and a stream continues where it was"


@pytest.mark.parametrize(
    ("request_", "rights"),
    [
        (Publish("etl", "out", 1, "0" * 16, {}), "put=out"),
        (Read("etl", "a,b", None), "get=a%2Cb"),
        (Read("etl", "orders", None, name="nightly"), "get=orders names=nightly"),
        (Get("etl", "orders", None, 0, 0, records_max=0, name="nightly"), "get=orders names=nightly"),
        (Report("etl", "-"), "status"),
    ],
)
def test_a_denied_request_ends_at_once_and_names_the_needed_rights(
    proxy: Proxy, link: Proxies, request_: Any, rights: str
) -> None:
    proxy.answer = denies("right", b"client etl may not do it")
    with pytest.raises(NotAllowed) as caught:
        link.ask(request_)
    assert str(caught.value) == f"client etl may not do it; its line in the file authorized needs {rights}{AGAIN}"
    assert len(proxy.asked) == 1


def test_a_key_of_another_client_and_a_revoked_key_have_their_own_remedies(proxy: Proxy, link: Proxies) -> None:
    proxy.answer = denies("sender", b"this key is alice's, not etl's")
    with pytest.raises(NotAllowed, match="alice's, not etl's; give the client ID of this key as option clientId"):
        link.ask(Read("etl", "orders", None))
    proxy.answer = denies("key", b"this key is not authorized any more")
    with pytest.raises(NotAllowed, match="any more; to authorize the key: pubsub keys authorize client etl pk_"):
        link.ask(Read("etl", "orders", None))


def test_a_too_long_text_of_a_proxy_is_truncated(proxy: Proxy, link: Proxies) -> None:
    proxy.answer = denies("right", b"x" * 1_000_000)
    with pytest.raises(NotAllowed) as caught:
        link.ask(Read("etl", "orders", None))
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("sentence", [b"", b"\xff\n\x1b[31mred\nTraceback", "ünïcode".encode()])
def test_the_text_of_a_proxy_is_one_line(proxy: Proxy, link: Proxies, sentence: bytes) -> None:
    proxy.answer = denies("right", sentence)
    with pytest.raises(NotAllowed) as caught:
        link.ask(Read("etl", "orders", None))
    assert str(caught.value).isprintable()
    assert str(caught.value).endswith(AGAIN)


def test_all_requests_of_a_driver_name_its_client(proxy: Proxy, link: Proxies) -> None:
    topics = Topics(link, "nightly")
    for ask in (
        topics.listed,
        lambda: topics.subscribe("t", "earliest"),
        lambda: topics.unsubscribe("t"),
        lambda: topics.plan("t", None),
        lambda: topics.acknowledge("t", ("0123456789abcdef", 1)),
    ):
        with pytest.raises(NotAllowed):
            ask()
    assert {one.sender for one in proxy.asked} == {"etl"}
    assert len(proxy.asked) == 5
