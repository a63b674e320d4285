"""An error of a client gives the reason for a missing answer, and names commands that find the same client."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub import AsyncClient, Client
from pubsub.client import explaining
from pubsub.client.errors import CallKept
from pubsub.client.explaining import obstacles_within, options_of
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import InDoubt, NotSubscribed, Unavailable

KEY = "pk_zQ0pOjV5cFTRTbFZxyNpfpzhEJAK2d8pkyRUWQAOnSs"


@pytest.fixture
def closed() -> Iterator[str]:
    """Return an address without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{bound.getsockname()[1]}"


def test_a_put_and_its_commands_name_the_refused_connection(tmp_path: Path, closed: str) -> None:
    with Client("c", proxies=[closed], directory=tmp_path) as client:
        with pytest.raises(InDoubt) as caught:
            client.put("t", b"x", timeout=0.05)
        text = str(caught.value)
        assert f"{closed}: Connection refused" in text
        options = f" --dir {tmp_path} --proxy {closed}"
        assert f"pubsub client c flush{options}; give up: pubsub client c discard t{options}" in text
        with pytest.raises(Unavailable, match="Connection refused"):
            client.subscribe("t", timeout=0.05)
        with pytest.raises(Unavailable, match="Connection refused"):
            client.get("t", timeout=0.05)
        with pytest.raises(NotSubscribed) as unsubscribed:
            client.get("other", timeout=0.05)
        assert str(unsubscribed.value).endswith(f"subscribe other{options}")
        kept = CallKept("c", "service", "order-17", 1.0, "no worker")
        kept.options = options
        assert str(kept).endswith(f"pubsub client c replies order-17{options}")


def test_an_async_client_names_the_refused_connection(tmp_path: Path, closed: str) -> None:
    async def scene() -> str:
        async with AsyncClient("c", proxies=[closed], directory=tmp_path) as client:
            with pytest.raises(InDoubt) as caught:
                await client.put("t", b"x", timeout=0.05)
            return str(caught.value)

    text = asyncio.run(scene())
    assert f"{closed}: Connection refused" in text
    assert f"--dir {tmp_path}" in text


def test_a_silent_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with Client("c", proxies=[address], directory=tmp_path) as client:
            with pytest.raises(InDoubt, match=f"{address}: the process there accepts connections and sends nothing"):
                client.put("t", b"x", timeout=0.05)
            client.discard("t")


def test_an_unknown_host_is_named_and_a_slow_lookup_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", unknown)
        found = obstacles_within(["tcp://nohost:5601", "inproc://here"], 5.0)
    assert found == {"tcp://nohost:5601": "unknown host (Name or service not known)", "inproc://here": ""}
    ended = threading.Event()

    def hangs(address: str, seconds: float) -> str:
        ended.wait(30)
        return "late"

    monkeypatch.setattr(explaining, "rejection", hangs)
    assert obstacles_within(["tcp://slow:1"], 0.01) == {}
    ended.set()


def test_options_omit_the_defaults(tmp_path: Path, pubsub_cluster: Embedded) -> None:
    assert options_of(ClientSettings()) == ""
    keyed = ClientSettings(
        proxies=("tcp://h:1",),
        proxy_keys=(KEY,),
        directory=tmp_path / "a b",
    )
    assert options_of(keyed) == f" --dir '{tmp_path}/a b'"
    assert "--proxy" not in options_of(ClientSettings(proxies=("inproc://p1",)))
