"""A malicious server with an authorized key: its false statements about another server's topic."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pubsub.client import Client
from pubsub.config.settings import ClientSettings
from pubsub.errors import PubsubError
from pubsub.messenger.framing import unpack
from pubsub.protocol import Operate, Outcome, Put, Status, decode
from pubsub.security.process_keys import ClientKeys
from tests.proxy.locked import Locked, locked, pair
from tests.proxy.peers import ServerPeer, wait_until
from tests.proxy.stage import log_id

GUESSES = 100


def client(proxy: Locked, directory: Path) -> Client:
    settings = ClientSettings(proxies=(proxy.process.bind,), directory=directory, try_seconds=20.0)
    return Client("ann", settings=settings, keys=ClientKeys(pair("ann"), ((pair("p1").public,),)))


def put_at(server: ServerPeer) -> tuple[bytes, int, Put]:
    """The next put: from whom, the callback for its answer, and what it says."""
    origin, head, body = server.request()
    prefix = unpack(head)
    put = decode(head[prefix.length :], body)
    assert isinstance(put, Put)
    return origin, prefix.source, put


def success(topic: str, put: Put) -> Status:
    return Status("s1", Outcome.SUCCESS, last=put.counter + put.count - 1, log=log_id(topic))


def test_a_server_cannot_answer_for_another_server(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy, ThreadPoolExecutor() as beside, client(proxy, tmp_path / "ann") as ann:
        bad, honest = proxy.serving("t"), proxy.serving("u", name="s2")
        first = beside.submit(ann.put, "t", b"to the bad one", timeout=30)
        origin, callback, put = put_at(bad)
        bad.send(success("t", put), origin=origin, destination=callback, source=0)
        first.result(30)

        second = beside.submit(ann.put, "u", b"to the honest one", timeout=3)
        _, _, put = put_at(honest)
        # The bad one says for the other that the message is on its disk, wherever the next callbacks would be.
        for guess in range(callback + 1, callback + GUESSES):
            bad.send(success("u", put), origin=origin, destination=guess, source=0)
        with pytest.raises(PubsubError):
            second.result(30)
        ann.discard("u")


def test_a_false_report_of_an_abandoned_topic_is_in_the_audit(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        bad, honest = proxy.serving("t"), proxy.serving("u", name="s2")
        said = Operate("s1", "p1", "abandoned", "u", "s2", "tcp://s2", log=log_id("u"), store=log_id("s2"))
        bad.send(said, origin=b"", source=0)
        assert honest.told().outcome is Outcome.ANNOUNCE
        (line,) = proxy.written("given_up")
        assert line["user"].startswith("server:s1#")
        assert (line["topic"], line["server"], line["log"]) == ("u", "s2", log_id("u"))
        assert not proxy.written("operate")
        bad.send(Operate("s2", "p1", "abandoned", "u", "s2"), origin=b"", source=0)
        for hostile in (b"OPERATE s1 x\r\n\r\n", b"PERIODIC s1-OPERATE x y\r\n\r\n", b"OPERATE "):
            bad.socket.send_multipart([b"", b"1-0-0-" + hostile])
        wait_until(lambda: proxy.count("refused") >= 2)
        assert proxy.written("given_up") == [line]
