"""Members that were started wrongly: one line, an exit code, and the cluster continues without harm."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub import Client
from pubsub.server.standby.disk.local_file import LocalFile
from tests.cli.standbys import FAST, Pair, pair, pubsub
from tests.cli.test_roles import refused, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One proxy, and server s1 with two members in sync; s2 with one."""
    with pair(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def begin(cluster: Pair, directory: Path, address: str, *options: str, server: str = "s1") -> tuple[int, str]:
    return refused(*cluster.member(directory, server), "--standby-of", address, *options)


def test_a_second_process_on_a_members_directory_is_refused(cluster: Pair) -> None:
    code, line = begin(cluster, cluster.directory / "b", cluster.addresses["a"])
    assert code == 9
    assert "in use by another process" in line


def test_both_members_with_the_same_directory_are_refused(cluster: Pair) -> None:
    code, line = begin(cluster, cluster.directory / "a", cluster.addresses["a"])
    assert code == 9
    assert "in use by another process" in line


def test_a_member_without_a_store_that_is_started_twice_is_refused(cluster: Pair, tmp_path: Path) -> None:
    nobody = "tcp://127.0.0.1:9"
    with running(*cluster.member(tmp_path / "c"), "--standby-of", nobody):
        member = LocalFile(tmp_path / "c").local
        code, line = begin(cluster, tmp_path / "c", nobody)
    assert code == 9
    assert "in use by another process" in line
    assert LocalFile(tmp_path / "c").local == member


def test_a_directory_with_another_servers_store_is_refused(cluster: Pair, tmp_path: Path) -> None:
    with running(*cluster.member(tmp_path, "s3")):
        pass
    code, line = begin(cluster, tmp_path, cluster.addresses["a"])
    assert code == 8
    assert "has a store of its own: start the standby with an empty directory" in line


def test_the_directory_of_a_member_of_another_server_is_refused(cluster: Pair) -> None:
    with cluster.stopped("b"):
        code, line = refused(*cluster.member(cluster.directory / "b", "s2"))
    assert code == 8
    assert line.endswith("belongs to a member of server s1, not of s2")


def test_a_standby_of_another_server_is_refused(cluster: Pair, tmp_path: Path) -> None:
    code, line = begin(cluster, tmp_path / "c", cluster.addresses["a"], server="s2")
    assert code == 8
    assert f"{cluster.addresses['a']} is server s1, not s2: correct --standby-of or --id" in line


def test_a_standby_of_itself_is_refused(cluster: Pair, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    code, line = begin(cluster, tmp_path / "c", own, "--bind", own)
    assert code == 8
    assert f"--standby-of {own} is this process itself: name the other member" in line


def test_a_standby_of_another_cluster_is_refused(cluster: Pair, tmp_path: Path) -> None:
    elsewhere = ["server", "start", "--id", "s1", "--proxy", "tcp://127.0.0.1:9", "--dir", tmp_path / "c", *FAST]
    code, line = refused(*elsewhere, "--standby-of", cluster.addresses["a"])
    assert code == 8
    assert "names other proxies: give both members the same proxies" in line


def test_a_third_member_is_refused(cluster: Pair, tmp_path: Path) -> None:
    code, line = begin(cluster, tmp_path / "c", cluster.addresses["a"])
    assert code == 8
    assert "server s1 has two members already (" in line
    assert line.endswith("pubsub server remove s1 --member ID")


@pytest.mark.parametrize("shortened", ["7c02", "7c02…"])
def test_a_shortened_member_id_is_refused(cluster: Pair, shortened: str) -> None:
    code, line = refused("server", "remove", "s1", "--member", shortened, "--yes", "--proxy", cluster.proxy)
    assert code == 2
    assert "16 lower-case hex digits" in line


def test_a_primary_restarted_as_a_standby_follows_the_register(cluster: Pair) -> None:
    with cluster.stopped("a"):
        cluster.until("alone")
        command = [*cluster.member(cluster.directory / "a"), "--standby-of", cluster.addresses["b"]]
        with running(*command):
            cluster.until("in sync")
    primary = cluster.until("in sync")["primary"]
    assert pubsub("server", "switch", "s1", "--proxy", cluster.proxy).returncode == 0
    assert cluster.until("in sync")["primary"] != primary, "the others of these tests begin with the first member"


def test_messages_survive_all_those_mistakes(cluster: Pair) -> None:
    with Client("late", proxies=[cluster.proxy], directory=cluster.directory / "late") as client:
        message = client.get("orders", timeout=120)
        client.put("orders", b"more", timeout=120)
    assert message is not None
    assert message.body == b"before"
