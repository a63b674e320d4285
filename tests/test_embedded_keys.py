"""An embedded cluster for other processes: clients without an authorized key are refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from pubsub import Client, embedded
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, ConfigurationError, InvalidKey, KeyRefused, NotAllowed
from pubsub.security.keys import format_public
from pubsub.security.pairs import Pair, new_pair
from pubsub.security.process_keys import ClientKeys
from tests.faults.cluster import until

ROOT = Path(__file__).parents[1]
LOOPBACK = "tcp://127.0.0.1:0"

OTHER_PROCESS = """
import sys
from pubsub import Client
from pubsub.config.settings import ClientSettings

proxy, key, key_file, directory = sys.argv[1:]
settings = ClientSettings(proxies=(proxy,), proxy_keys=(key,), key_file=key_file, directory=directory)
with Client("other", settings=settings) as client:
    client.put("orders", b"from another process", timeout=20)
"""


def known(cluster: Embedded, pair: Pair) -> ClientKeys:
    """The keys of a client that knows the expected key of the proxy."""
    with cluster.client("known") as client:
        keys = client._session.keys
    assert keys is not None
    return ClientKeys(pair, keys.expected)


def stranger(cluster: Embedded, name: str, pair: Pair, directory: Path) -> Client:
    return Client(
        name, settings=ClientSettings(proxies=cluster.proxies, directory=directory), keys=known(cluster, pair)
    )


def finished(client: Client) -> bool:
    """Return True if its put goes out now; a client that was just refused does not ask again with each call."""
    try:
        client.flush(timeout=20)
    except KeyRefused:
        return False
    return True


def test_each_client_of_this_process_has_its_own_key() -> None:
    with embedded(bind=LOOPBACK) as cluster:
        assert cluster.proxies[0].startswith("tcp://127.0.0.1:")
        assert len(cluster.proxy_keys) == 1
        with cluster.client("a") as one, cluster.client("b") as other:
            one.subscribe("orders")
            other.put("orders", b"x")
            message = one.get("orders", timeout=10.0)
            assert message is not None
            assert message.body == b"x"
            keys = [client._session.keys for client in (one, other)]
            assert keys[0] is not None
            assert keys[1] is not None
            assert keys[0].pair.public != keys[1].pair.public
        with cluster.client("a") as again:  # And keep it.
            assert again._session.keys == keys[0]
            again.put("orders", b"y")


def test_another_process_connects_with_a_key_file(tmp_path: Path) -> None:
    with embedded(bind=LOOPBACK) as cluster, cluster.client("here") as client:
        client.subscribe("orders")
        file = cluster.key_file("other", "put=orders")
        words = [cluster.proxies[0], cluster.proxy_keys[0], str(file), str(tmp_path / "other")]
        done = subprocess.run(
            [sys.executable, "-c", OTHER_PROCESS, *words], cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        message = client.get("orders", timeout=10.0)
        assert message is not None
        assert message.body == b"from another process"
        with pytest.raises(ConfigurationError, match="exists already"):
            cluster.key_file("other")


def test_an_authorized_key_connects_and_is_limited_to_its_rights(tmp_path: Path) -> None:
    pair = new_pair()
    with embedded(bind=LOOPBACK) as cluster, stranger(cluster, "eve", pair, tmp_path) as eve:
        with pytest.raises(KeyRefused, match="pubsub keys authorize client eve"):
            eve.put("orders", b"x", timeout=20)
        cluster.authorize("eve", format_public(pair.public), "put=orders")
        until(lambda: finished(eve), "the put goes out")
        with pytest.raises(NotAllowed, match="client eve may not put to invoices"):
            eve.put("invoices", b"x", timeout=20)


def test_a_key_is_revoked_while_it_is_connected(tmp_path: Path) -> None:
    pair = new_pair()
    with embedded(bind=LOOPBACK) as cluster:
        cluster.authorize("eve", format_public(pair.public))
        with stranger(cluster, "eve", pair, tmp_path) as eve:
            eve.put("orders", b"x", timeout=20)
            cluster.revoke(format_public(pair.public))
            with pytest.raises(NotAllowed, match="not authorized any more"):
                eve.put("orders", b"y", timeout=20)


def test_a_client_of_this_process_cannot_use_another_id(tmp_path: Path) -> None:
    with embedded(bind=LOOPBACK) as cluster:
        with cluster.client("alice") as alice:
            keys = alice._session.keys
        with (
            Client("bob", settings=ClientSettings(proxies=cluster.proxies, directory=tmp_path), keys=keys) as bob,
            pytest.raises(NotAllowed, match="this key is alice's, not bob's"),
        ):
            bob.put("orders", b"x", timeout=20)


def test_an_async_client_has_a_key_too() -> None:
    async def put() -> None:
        async with cluster.async_client("alice") as alice:
            await alice.put("orders", b"x", timeout=20)

    with embedded(bind=LOOPBACK) as cluster:
        asyncio.run(put())


def test_a_client_cannot_pose_as_another_id(tmp_path: Path) -> None:
    pair = new_pair()
    with embedded(bind=LOOPBACK) as cluster:
        cluster.authorize("eve", format_public(pair.public))
        with (
            stranger(cluster, "alice", pair, tmp_path) as client,
            pytest.raises(NotAllowed, match="this key is eve's, not alice's"),
        ):
            client.put("orders", b"x", timeout=20)


def test_a_cluster_with_keys_may_listen_on_every_interface() -> None:
    with embedded(bind="tcp://0.0.0.0:0") as cluster, cluster.client("a") as client:
        assert cluster.proxies[0].startswith("tcp://127.0.0.1:")
        client.put("orders", b"x", timeout=20)


def test_a_cluster_within_one_process_has_no_keys() -> None:
    with embedded() as cluster:
        assert cluster.proxy_keys == ()
        assert cluster.proxies[0].startswith("inproc://")
        with pytest.raises(CallerError, match=r"start it with embedded\(bind=…\)"):
            cluster.authorize("eve", format_public(new_pair().public))


@pytest.mark.parametrize("bind", ["inproc://here", "", 5601])
def test_a_bind_address_for_one_process_only_is_refused(bind: object) -> None:
    with pytest.raises(CallerError, match="bind is tcp://HOST:PORT or ipc://PATH"):
        embedded(bind=bind)  # type: ignore[arg-type]


def test_an_invalid_key_or_right_is_a_caller_error() -> None:
    with embedded(bind=LOOPBACK) as cluster:
        public = format_public(new_pair().public)
        with pytest.raises(InvalidKey):
            cluster.authorize("eve", "pk_")
        with pytest.raises(CallerError, match="there is no right"):
            cluster.authorize("eve", public, "everything")
        with pytest.raises(CallerError, match="client ID"):
            cluster.authorize("", public)
