"""The disk of a client: its content before a request is sent, and the results of its failures."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

import pubsub.client.session
from pubsub.errors import StorageError
from pubsub.messenger import Messenger
from pubsub.protocol import Put, Subscribe, Unsubscribe, decode
from tests.faults.checker import check
from tests.faults.cluster import Cluster, until
from tests.faults.finish import finish, objections, put_end
from tests.faults.history import Putting, Taking

pytestmark = pytest.mark.faults


class Disk(apsw.VFS):
    """The operating system's, that knows what was written to a log and not synced since.

    Attributes:
        unsynced: writes to the write-ahead log since it was synced.
        broken: syncs fail.
    """

    def __init__(self) -> None:
        self.name = f"client {id(self)}"
        super().__init__(self.name, "unix", makedefault=True)
        self.unsynced = 0
        self.broken = False

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return File(self, name, flags)


class File(apsw.VFSFile):
    """A file of it."""

    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._disk, self._is_log = disk, path.endswith("-wal")

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._is_log:
            self._disk.unsynced += 1
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._disk.broken:
            raise apsw.IOError("the test's disk does not sync")
        super().xSync(flags)
        if self._is_log:
            self._disk.unsynced = 0


@pytest.fixture
def disk() -> Iterator[Disk]:
    """It is that of clients of this process, which are to be closed before it goes."""
    made = Disk()
    yield made
    made.unregister()


@pytest.fixture
def sent(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What clients of this process send that changes something: which message, and whether all was on the disk."""
    out: list[tuple[str, bool]] = []

    class Recording(Messenger):
        def send(self, destination: Any, contents: Any, *words: Any, **named: Any) -> int:
            head, *rest = contents if isinstance(contents, tuple) else (contents,)
            message = decode(head, rest[0] if rest else None)
            if isinstance(message, Put | Subscribe | Unsubscribe):
                out.append((f"{type(message).__name__} {message.topic}", disk.unsynced == 0))
            return super().send(destination, contents, *words, **named)

    monkeypatch.setattr(pubsub.client.session, "Messenger", Recording)
    return out


def safe(sent: list[tuple[str, bool]], what: str) -> set[bool]:
    """Whether all was on the disk when these were sent: {True}, {False} or both."""
    return {synced for name, synced in sent if name == what}


def test_an_irrevocable_change_is_on_the_clients_disk_before_its_request(
    cluster: Cluster, sent: list[tuple[str, bool]]
) -> None:
    cluster.run(1, 1)
    with cluster.client("alice") as alice:
        for _ in range(5):
            alice.subscribe("a")
            alice.put("plain", b"x")
            alice.put("a", b"1")
            with alice.transaction() as transaction:
                transaction.execute("create table if not exists mine (x)")
                transaction.execute("insert into mine values (1)")
                alice.put("lot", b"x", transaction=transaction)
            alice.process("a", lambda message, t: alice.put("answer", message.body, transaction=t), timeout=10.0)
            alice.unsubscribe("a")
        alice.flush()
    assert [safe(sent, f"{kind} a") for kind in ("Subscribe", "Unsubscribe")] == [{True}, {True}]
    assert [safe(sent, f"Put {topic}") for topic in ("lot", "answer")] == [{True}, {True}]
    assert False in safe(sent, "Put plain"), "a plain put costs no sync, or this test sees none"
    with cluster.client("careful", power_safe=True) as careful:
        careful.put("safe", b"x")
        careful.put_many("safe", [b"x"] * 10)
    assert safe(sent, "Put safe") == {True}


def test_a_client_whose_disk_does_not_sync_raises_sends_nothing_and_recovers(
    cluster: Cluster, disk: Disk, sent: list[tuple[str, bool]]
) -> None:
    cluster.run(1, 1)
    with cluster.client("bob") as bob, cluster.client("alice") as alice:
        taking, putting = Taking(bob), Putting(alice, "alice")
        taking.intend("a", True)
        putting.lot(["a"])
        putting.flush()
        before = len(sent)
        disk.broken = True
        for _ in range(3):
            with pytest.raises(StorageError):
                putting.lot(["a", "a"])
        assert len(sent) == before
        disk.broken = False
        putting = Putting(alice, "alice")
        putting.lot(["a", "a"])
        putting.flush()
        put_end(cluster, ["a"])
        taking.drain("a")
    for client in cluster.clients:
        client.close()
    assert check([cluster.state("alice")], [cluster.state("bob")]) == []


@pytest.mark.parametrize("role", ["publisher", "subscriber"])
def test_a_client_whose_files_cannot_grow_ends_in_an_error_and_continues_later(cluster: Cluster, role: str) -> None:
    cluster.run(1, 1)
    subscriber = cluster.subscriber("bob", ["a"])
    subscriber.wait_line("subscribed")
    publisher = cluster.publisher("alice", ["a"], pause=0.01)
    until(lambda: subscriber.number("took") > 50, "traffic flows")
    victim = publisher if role == "publisher" else subscriber
    log = cluster.directory / "clients" / f"{victim.name}.db-wal"
    limit = log.stat().st_size
    resource.prlimit(victim.running.pid, resource.RLIMIT_FSIZE, (limit, limit))
    assert victim.wait() == 1
    assert f"{victim.name}.db" in victim.errors.read_text().splitlines()[-1]
    victim.start()
    before = subscriber.number("took")
    until(lambda: subscriber.number("took") > before + 50, "traffic flows again")
    finish(cluster, ["a"], [publisher], [subscriber])
    assert objections(cluster, [publisher], [subscriber]) == []
