"""IPv6 wherever an address is taken, and in brackets wherever one is printed."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub import Client, ServiceClient, Worker, embedded
from pubsub.base.reachability import mechanism, rejection
from pubsub.cli.cluster import numbered
from pubsub.config.addresses import check_address, check_http_address, listens_everywhere, read_proxies
from pubsub.config.settings import ClientSettings, ProxySettings, ServerSettings
from pubsub.errors import ConfigurationError
from pubsub.gateway.process import GatewaySettings
from pubsub.gateway.process import listen as gateway_listen
from pubsub.messenger.sockets import open_dealer, open_router
from pubsub.metrics.serving import listen as metrics_listen
from pubsub.protocol.names import is_endpoint, keyed_endpoint, parse_endpoint
from pubsub.proxy.process import ProxyProcess
from pubsub.server.process import ServerProcess
from pubsub.server.promote import address_of
from pubsub.spark.options import sink_options
from tests.services.running import Running

ANY = "tcp://[::1]:0"


def test_proxy_server_and_client_meet_at_ipv6_addresses_only(tmp_path: Path) -> None:
    with ExitStack() as stack:
        proxy = ProxyProcess(ProxySettings(id="p", bind=ANY, directory=tmp_path / "p", startup_wait_seconds=0.0))
        _run(stack, proxy)
        assert proxy.bind.startswith("tcp://[::1]:")
        server = ServerProcess(ServerSettings(id="s", bind=ANY, proxies=(proxy.bind,), directory=tmp_path / "s"))
        _run(stack, server)
        assert server.address.startswith("tcp://[::1]:")
        client = stack.enter_context(Client("c", proxies=[proxy.bind], directory=tmp_path / "c"))
        client.subscribe("t", timeout=60)
        client.put("t", b"over IPv6", timeout=60)
        message = client.get("t", timeout=60)
        assert message is not None
        assert message.body == b"over IPv6"


def _run(stack: ExitStack, process: ProxyProcess | ServerProcess) -> None:
    stack.callback(process.close)
    process.start()
    thread = threading.Thread(target=process.run)
    thread.start()
    stack.callback(thread.join, 60)
    stack.callback(process.stop)


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({"bind": "tcp://[::1]:0"}, "tcp://[::1]:5611"),
        ({"bind": "tcp://[::1]:5612"}, "tcp://[::1]:5612"),
        ({"bind": "tcp://127.0.0.1:*"}, "tcp://127.0.0.1:5611"),
        ({"bind": "tcp://[::]:5612", "advertise": "tcp://[fd00::2]:5613", "insecure": True}, "tcp://[fd00::2]:5613"),
        ({}, "tcp://127.0.0.1:5611"),
    ],
)
def test_a_promoted_member_gets_the_address_it_listens_at(
    settings: dict[str, Any], address: str, tmp_path: Path
) -> None:
    assert (
        address_of(ServerSettings(id="s", proxies=("tcp://[::1]:5601",), directory=tmp_path, **settings), 5611)
        == address
    )


def test_an_embedded_cluster_listens_at_ipv6_with_keys(tmp_path: Path) -> None:
    for bind in (ANY, "tcp://[::]:0"):
        with embedded(bind=bind) as cluster, cluster.client("a") as client:
            assert cluster.proxies[0].startswith("tcp://[::1]:")
            client.put("t", b"x", timeout=60)
            assert mechanism(cluster.proxies[0], 10) == "CURVE"


def test_a_socket_that_listens_on_all_of_ipv6_takes_ipv4_too() -> None:
    with zmq.Context() as context:
        router, bound = open_router(context, "tcp://[::]:0")
        port = bound.rpartition(":")[2]
        assert bound == f"tcp://[::]:{port}"
        for host in ("127.0.0.1", "[::1]"):
            dealer = open_dealer(context, f"tcp://{host}:{port}")
            dealer.send(host.encode())
            assert router.poll(60_000)
            assert router.recv_multipart()[-1] == host.encode()
            dealer.close(0)
        router.close(0)


def test_services_meet_at_ipv6() -> None:
    with Running() as running:
        worker = running.worker(Worker("shout", bind=ANY, handler=lambda request: request.body.upper()))
        assert worker.address.startswith("tcp://[::1]:")
        with ServiceClient(worker.address, kind="lazy") as client:
            assert client.call("", b"hello").body == b"HELLO"


def test_http_is_served_at_ipv6(tmp_path: Path) -> None:
    for listening in (
        gateway_listen(GatewaySettings("[::1]:0", tmp_path)),
        metrics_listen("[::1]:0", insecure=False),
    ):
        with listening:
            assert listening.family == socket.AF_INET6
    with pytest.raises(ConfigurationError, match=r"\[::1\]:8080"):
        gateway_listen(GatewaySettings("::1:8080", tmp_path))
    assert numbered("[::1]:9400", 2) == "[::1]:9402"


@pytest.mark.parametrize("check", [check_address, check_http_address])
def test_an_address_in_brackets_is_checked(check: object) -> None:
    assert callable(check)
    for address in ("[::1]:5601", "[fe80::1%eth0]:5601"):
        assert check(address).endswith(address)
    for text in ("[::1:5601", "::1:5601", "[nonsense]:5601", "[127.0.0.1]:5601", "[1:2]:5601"):
        with pytest.raises(ValueError, match="bracket"):
            check(text)


def test_files_and_options_accept_ipv6_addresses(tmp_path: Path) -> None:
    file = tmp_path / "proxies"
    file.write_text("tcp://[::1]:5601 tcp://[::1]:5602\n[fd00::2]:5601\n")
    assert [proxy.clients for proxy in read_proxies(file)] == ["tcp://[::1]:5601", "tcp://[fd00::2]:5601"]
    assert listens_everywhere("tcp://[::]:5601")
    assert ClientSettings(proxies=("tcp://[::1]:5601",)).proxies == ("tcp://[::1]:5601",)
    assert is_endpoint("tcp://[fe80::1%eth0]:5601")
    assert parse_endpoint(keyed_endpoint("s", "tcp://[::1]:5601")) == ("s", "tcp://[::1]:5601")
    assert sink_options({"sink": "s", "topic": "t", "proxies": "tcp://[::1]:5601"}).proxies == ("tcp://[::1]:5601",)


def test_the_reason_of_a_silent_ipv6_address_is_found() -> None:
    with zmq.Context() as context:
        router, address = open_router(context, ANY)
        assert rejection(address, 10.0) == ""
        router.close(0)
    assert rejection(address) == "Connection refused"
