"""The embedded cluster and the pytest plugin that ships with the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub import Client, embedded
from pubsub.embedded import Embedded
from pubsub.errors import ConfigurationError
from tests.client.opened import nothing


def test_the_fixture_gives_a_running_cluster(pubsub_cluster: Embedded) -> None:
    with pubsub_cluster.client("billing") as client:
        client.subscribe("orders")
        client.put("orders", b"first")
        message = client.get("orders", timeout=5.0)
        assert message is not None
        assert message.body == b"first"


def test_a_temporary_cluster_leaves_nothing_behind() -> None:
    with embedded() as cluster, cluster.client("c") as client:
        client.put("t", b"x")
        directory = cluster.directory
        assert directory.exists()
    assert not directory.exists()


def test_settings_of_both_roles_can_be_changed(tmp_path: Path) -> None:
    from dataclasses import replace

    with embedded(tmp_path, server=lambda settings: replace(settings, announce_seconds=0.5)) as cluster:
        assert cluster.directory == tmp_path


def test_two_clusters_in_one_process_do_not_meet(tmp_path: Path) -> None:
    with (
        embedded(tmp_path / "a") as first,
        embedded(tmp_path / "b") as second,
        first.client("c") as one,
        second.client("c") as other,
    ):
        one.subscribe("t")
        other.subscribe("t")
        one.put("t", b"x")
        assert nothing(other, "t")
        assert one.get("t", timeout=5.0) is not None


def test_a_close_interrupted_by_ctrl_c_still_ends_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destroy, closed, clients = zmq.Context.destroy, [], []

    def destroyed(context: zmq.Context[Any], linger: int | None = None) -> None:
        # A thread in a socket that ends with its context would end the process.
        closed.extend(one._session._messenger.closed for one in clients)
        destroy(context, linger)

    def struck(seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(zmq.Context, "destroy", destroyed)
        cluster = embedded(tmp_path)
        client = cluster.client("c")
        clients.append(client)
        patch.setattr(client._calls, "close", struck)
        with pytest.raises(KeyboardInterrupt):
            cluster.close()
        clients.clear()
    assert closed == [True]
    client.close()
    with embedded(tmp_path) as again, again.client("c") as other:
        other.put("t", b"x")


def imports(module: str) -> set[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_or_the_plugin_imports_nothing_heavy() -> None:
    for module in ("pubsub", "pubsub.testing", "pubsub.client"):
        assert not imports(module) & {"zmq", "apsw", "asyncio", "typer"}, module


def test_every_exported_name_exists() -> None:
    import pubsub
    import pubsub.client

    for package in (pubsub, pubsub.client):
        for name in package.__all__:
            assert getattr(package, name) is not None


@pytest.mark.slow
def test_the_function_embedded_stays_callable_after_every_import_order() -> None:
    programs = [
        "from pubsub.embedded import Embedded; from pubsub import embedded; import pubsub",
        "import pubsub.embedded; import pubsub; from pubsub import embedded; from pubsub.embedded import Embedded",
        "from pubsub import embedded; from pubsub.embedded import Embedded, embedded; import pubsub",
        "from pubsub import *; import pubsub; from pubsub import embedded, Embedded",
    ]
    test = """
import types
assert isinstance(embedded, types.FunctionType) and pubsub.embedded is embedded, embedded
with embedded() as cluster:
    assert isinstance(cluster, Embedded) and cluster.proxies
"""
    for program in programs:
        subprocess.run([sys.executable, "-c", program + "\n" + test], check=True, timeout=60)


def test_an_address_of_another_context_is_refused_at_once(tmp_path: Path) -> None:
    with embedded() as cluster:
        own: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            for context in (None, own):
                with pytest.raises(ConfigurationError, match=r"cluster\.client"):
                    Client("c", proxies=cluster.proxies, directory=tmp_path, context=context)
            with Client("c", proxies=cluster.proxies, directory=tmp_path, context=cluster.context) as client:
                client.put("t", b"x")
        finally:
            own.term()
