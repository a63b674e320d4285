"""Disks that do not sync or take no more, and stores that were copied, taken from a backup, cut or changed."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from pubsub.cli import main
from pubsub.errors import DataLoss, InDoubt, Unavailable
from tests.client.opened import nothing
from tests.faults.checker import check
from tests.faults.cluster import Cluster, Process
from tests.faults.finish import put_end
from tests.faults.history import Putting, Taking

pytestmark = pytest.mark.faults


def broken(*breakages: str, file: Path) -> tuple[str, ...]:
    """The program of a server with these breakages."""
    return ("-m", "tests.faults.broken_server", ",".join(breakages), str(file))


def end(process: Process) -> None:
    """SIGTERM, so that everything is in the one file."""
    process.running.send_signal(signal.SIGTERM)
    assert process.wait() == 0


def one_line(process: Process) -> str:
    """What it said when it ended by itself."""
    (line,) = process.errors.read_text().splitlines()
    return line


# Syncs


def test_a_server_whose_disk_does_not_sync_stops_without_an_answer_and_recovers(
    cluster: Cluster, tmp_path: Path
) -> None:
    begin = tmp_path / "begin"
    cluster.run(1, 1, entry=broken("fail_to_sync", file=begin))
    taking, putting = Taking(cluster.client("bob")), Putting(cluster.client("alice"), "alice")
    taking.intend("a", True)
    putting.put("a")
    begin.touch()
    with pytest.raises(InDoubt):
        putting.put("a", timeout=1.0)
    assert cluster.servers[0].wait() == 7
    assert "server.db" in one_line(cluster.servers[0])
    begin.unlink()
    cluster.servers[0].start()
    putting.flush()
    putting.put("a")
    put_end(cluster, ["a"])
    taking.drain("a")
    for client in cluster.clients:
        client.close()
    assert check([cluster.state("alice")], [cluster.state("bob")]) == []


def test_a_server_whose_files_may_not_grow_stops_without_an_answer_and_recovers(
    cluster: Cluster, tmp_path: Path
) -> None:
    begin = tmp_path / "limit"
    begin.write_text(str(24 << 20))
    cluster.run(1, 1, entry=broken("no_larger_files", file=begin))
    bob, alice = cluster.client("bob"), cluster.client("alice")
    bob.subscribe("a")
    put = 0
    while cluster.servers[0].running.poll() is None:
        try:
            alice.put("a", b"x" * (1 << 20), timeout=1.0)
        except InDoubt:
            break
        put += 1
    assert put > 5
    assert cluster.servers[0].wait() == 7
    begin.write_text(str(1 << 40))
    cluster.servers[0].start()
    alice.flush()
    got = 0
    while got < put + 1:
        got += len(bob.get_many("a", timeout=10.0))
    assert nothing(bob, "a")


def unsynced_answers(book: Path) -> dict[str, int]:
    """Of puts and of entries: how many successes were answered before the commit was written and synced."""
    unwritten: list[str] = []
    unsynced: list[str] = []
    out = {"put": 0, "entry": 0}
    waiting: set[str] = set()
    for line in book.read_text().splitlines():
        word, _, what = line.partition(" ")
        if word == "made":
            unwritten.append(what)
            waiting.add(what)
        elif word == "write":
            unsynced += unwritten
            unwritten.clear()
        elif word == "sync":
            waiting -= set(unsynced)
            unsynced.clear()
        elif what in waiting:
            out[what.split()[0]] += 1
    return out


@pytest.mark.parametrize(
    ("breakage", "right"), [("not_at_all", True), ("sync_nothing", False), ("answer_before_commit", False)]
)
def test_every_success_is_preceded_by_a_sync_of_its_change(
    cluster: Cluster, tmp_path: Path, breakage: str, right: bool
) -> None:
    begin = tmp_path / "begin"
    cluster.run(1, 1, entry=broken(breakage, "record_syncs", file=begin))
    begin.touch()
    with cluster.client("alice") as alice, cluster.client("bob") as bob:
        for _ in range(20):
            alice.put("a", b"x", wait=False)
            alice.put_many("b", [b"y"] * 10)
            bob.subscribe("a")
            bob.unsubscribe("a")
        alice.flush()
    book = begin.with_suffix(".book")
    lines = book.read_text().splitlines()
    found = unsynced_answers(book)
    for what in ("put", "entry"):
        assert sum(line.startswith(f"answer {what}") for line in lines) >= 20
        assert (found[what] == 0) == right


# Copies


def test_a_copied_data_directory_started_twice_is_refused_and_the_first_goes_on(cluster: Cluster) -> None:
    cluster.run(2, 1)
    bob, alice = cluster.client("bob"), cluster.client("alice")
    bob.subscribe("a")
    alice.put("a", b"1")
    shutil.copytree(cluster.directory / "s1", cluster.directory / "copy")
    (cluster.directory / "copy" / "lock").unlink()
    again = cluster.server("s1", data=cluster.directory / "s1")
    assert again.wait() == 9
    assert "in use" in one_line(again)
    shutil.copytree(cluster.directory / "copy", cluster.directory / "another")
    seconds = {  # Its own name, and another over the same store.
        "s1": cluster.server("s1", data=cluster.directory / "copy"),
        "s2": cluster.server("s2", data=cluster.directory / "another"),
    }
    for name, second in seconds.items():
        assert second.wait() == 8
        # It may have said before that it waits to be taken over; it never says that it is ready.
        assert f"server {name} cannot join" in second.errors.read_text().splitlines()[-1]
    alice.put("a", b"2")
    assert [bob.get("a").body, bob.get("a").body] == [b"1", b"2"]


def test_a_store_from_a_backup_is_found_out_and_does_not_serve(cluster: Cluster) -> None:
    cluster.run(2, 1)
    bob, alice = cluster.client("bob"), cluster.client("alice")
    bob.subscribe("a")
    alice.put("a", b"1")
    end(cluster.servers[0])
    shutil.copytree(cluster.directory / "s1", cluster.directory / "backup")
    cluster.servers[0].start().ready()
    alice.put("a", b"2")
    alice.put("new", b"3")
    for proxy in (0, 1):  # What the server says of itself, a proxy may not know yet.
        assert cluster.holders("new", proxy) == ["s1"]
    end(cluster.servers[0])
    shutil.rmtree(cluster.directory / "s1")
    assert main(["server", "check", "--dir", str(cluster.directory / "backup")]) == 0  # The file itself cannot know.
    assert main(["server", "check", "--dir", str(cluster.directory / "backup"), "--proxy", cluster.addresses[0]]) == 18
    shutil.copytree(cluster.directory / "backup", cluster.directory / "s1")
    cluster.servers[0].start()
    assert cluster.servers[0].wait() == 8
    assert main(["server", "check", "--dir", str(cluster.directory / "s1")]) == 18
    assert "change" in one_line(cluster.servers[0])


# Damage


@pytest.fixture
def stored(cluster: Cluster) -> tuple[Taking, Taking, Path]:
    """Two topics with a subscriber each, forty batches each, on the disk of a server that has ended."""
    cluster.run(1, 1)
    bob, eve = Taking(cluster.client("bob", timeout_seconds=5.0)), Taking(cluster.client("eve"))
    alice = cluster.client("alice")
    bob.intend("a", True)
    eve.intend("b", True)
    for number in range(40):
        alice.put("a", b"a%d:" % number + b"x" * 8000)
        alice.put("b", b"b%d:" % number + b"y" * 8000)
    end(cluster.servers[0])
    return bob, eve, cluster.directory / "s1" / "server.db"


def all_of(taking: Taking, topic: str, count: int) -> list[str]:
    """So many messages' names."""
    got: list[str] = []
    while len(got) < count:
        batch = taking.client.get_many(topic, timeout=3.0)
        assert batch
        got += [body.partition(b":")[0].decode() for body in batch.bodies()]
    return got


def test_a_flipped_bit_is_one_reported_loss_and_the_rest_is_served(cluster: Cluster, stored) -> None:
    bob, eve, path = stored
    data = bytearray(path.read_bytes())
    place = data.index(b"a17:xxx") + 100
    data[place] ^= 1
    path.write_bytes(data)
    cluster.servers[0].start()
    assert all_of(bob, "a", 17) == [f"a{number}" for number in range(17)]
    with pytest.raises(DataLoss):
        bob.client.get_many("a", timeout=10.0)
    assert all_of(bob, "a", 22) == [f"a{number}" for number in range(18, 40)]
    assert all_of(eve, "b", 40) == [f"b{number}" for number in range(40)]
    assert len(bob.client.dead_letters("a")) == 1
    assert cluster.report("s1")["counters"]["batches_damaged"] == 1


@pytest.mark.parametrize("kept", [0.9, *(pytest.param(kept, marks=pytest.mark.nightly) for kept in (0.5, 0.999))])
def test_a_store_that_was_cut_short_is_refused_in_one_line(cluster: Cluster, stored, kept: float) -> None:
    path = stored[2]
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * kept))
    cluster.servers[0].start()
    assert cluster.servers[0].wait() == 7
    assert "server.db: damaged" in one_line(cluster.servers[0])


@pytest.mark.parametrize("page", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_store_with_noise_in_its_first_pages_is_refused_in_one_line(cluster: Cluster, stored, page: int) -> None:
    overwrite(stored[2], page * 16_384)
    cluster.servers[0].start()
    assert cluster.servers[0].wait() == 7
    assert "server.db: damaged" in one_line(cluster.servers[0])


def test_a_page_of_one_topic_that_is_noise_leaves_the_other_topics_served(cluster: Cluster, stored) -> None:
    bob, eve, path = stored
    page = path.read_bytes().index(b"a17:xxx") // 16_384
    overwrite(path, page * 16_384)
    cluster.servers[0].start()
    with pytest.raises(Unavailable, match="damaged"):
        all_of(bob, "a", 40)
    assert all_of(eve, "b", 40) == [f"b{number}" for number in range(40)]
    assert cluster.report("s1")["topics"]["a"]["damaged"]
    assert cluster.servers[0].running.poll() is None


def overwrite(path: Path, place: int) -> None:
    """Noise in place of a page."""
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes(range(1, 256)) * 64)
