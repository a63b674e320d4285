"""Damaged stores of every process: an opening or a read ends in one clear line with the disk's exit code, or works.

Each store is made once, with rows in it. Each seed damages one place of a copy: the head of a page, a whole page, some
bytes, a text, the file's end. What is read then is all that its process reads at its start.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from pubsub.client import Client
from pubsub.errors import StorageError
from pubsub.gateway.registry import Registry, Subscriber, Webhook
from pubsub.http.storage import inbox, outbox
from pubsub.http.storage.journal import Journal, OwnFile
from pubsub.protocol.register import View
from pubsub.protocol.standby import ROOT, EntryId
from pubsub.proxy.remembered import RegisterRow, RouteChanges, StoreRow
from pubsub.proxy.routes_file import RoutesStore
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.stream import Stream
from pubsub.server.standby.replication.entries import make_entry
from pubsub.server.topic import changes as c
from pubsub.services.core.titanic.requests import Accepted, Entry, State
from pubsub.services.titanic.store import Store as TitanicStore
from tests.http.test_inbox import REQUEST as RECEIVED
from tests.http.test_outbox import REQUEST as SENT

A, B = "a" * 16, "b" * 16
SEEDS = 25


def routes(directory: Path) -> None:
    """A proxy's routes file: made or read, with its register."""
    store = RoutesStore(directory)
    with contextlib.closing(store):
        if store.load().stores:
            return
        row = StoreRow(A, "s1", 3, 9, "tcp://s1", overflow=True)
        register = RegisterRow(A, 9, 7, View(5, A, "tcp://h:1", (A, B), (A,)), "s1")
        topics: dict[tuple[str, str], str | None] = {(f"topic-{number}", A): B for number in range(300)}
        store.write(RouteChanges({A: row}, topics, registers={A: register}))


def titanic(directory: Path) -> None:
    """A store of Titanic's: its requests, with their bodies."""
    with contextlib.closing(TitanicStore(directory)) as store:
        entries = store.entries()
        store.age()
        for entry in entries:
            store.body(entry)
        if not entries:
            new = [Entry(b"%032x" % one, b"echo", b"key-%d" % one, b"d", State.PENDING, 1.0) for one in range(60)]
            store.write(
                [Accepted(entry, (b"body" * (5_000 if entry.id.endswith(b"7") else 50),)) for entry in new], 2.0
            )


def reliable_http(directory: Path) -> None:
    """The file of reliable requests: those sent and received."""
    with contextlib.closing(Journal(OwnFile(directory, ""))) as journal, journal.transaction() as transaction:
        known = outbox.every(transaction, open_only=False)
        assert all(outbox.find(transaction, one.id) or True for one in known)
        outbox.active(transaction)
        outbox.measure(transaction)
        inbox.waiting(transaction)
        for request in inbox.every(transaction, open_only=False):
            inbox.find(transaction, request.owner, request.key)
        if not known:
            for number in range(40):
                outbox.add(transaction, replace(SENT, id=f"sent-{number}", body=b"b" * 900))
                inbox.add(transaction, replace(RECEIVED, key=f"received-{number}", body=b"c" * 900))


def gateway(directory: Path) -> None:
    """The registry of a gateway's subscribers."""
    with contextlib.closing(Registry(directory)) as registry:
        if not registry.all():
            for number in range(40):
                hook = Webhook(f"https://h/{number}", ("secret",), "on", "") if number % 2 else None
                registry.put(Subscriber("alice", f"topic-{number}", "name", hook))


def member(directory: Path) -> None:
    """A standby's stream, and the file that says which member it is."""
    directory.mkdir(exist_ok=True)
    LocalFile(directory).make(A)
    with contextlib.closing(Stream(directory / "stream", ROOT)) as stream:
        if not stream.staged:
            last = ROOT
            for number in range(1, 30):
                entry = make_entry(EntryId(1, number), last, [c.NoteKept("n", "x" * 500)])
                stream.append([entry], own=False)
                last = entry.id
            stream.sync()
        for entry in stream.staged:
            stream.read(entry.previous, 1, 1)


def client(directory: Path) -> None:
    """A client's state: puts that wait, a subscription, calls."""
    with Client("c", proxies=["tcp://127.0.0.1:9"], directory=directory) as opened:
        if not list(opened._session.store.rows()):
            for number in range(30):
                opened.put(f"topic-{number}", b"m" * (20_000 if number % 5 == 0 else 400), wait=False)
        for counter, *_ in opened._session.store.rows():
            opened._session.store.body(counter)
        opened._session.store.dead_letters(None)


STORES: list[Callable[[Path], None]] = [routes, titanic, reliable_http, gateway, member, client]


@pytest.fixture(scope="module", params=STORES, ids=lambda store: str(store.__name__))
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Callable[[Path], None], Path]:
    """A kind of store, and a directory that has a sound one."""
    directory = tmp_path_factory.mktemp("sound") / "store"
    request.param(directory)
    request.param(directory)  # It can be read.
    return request.param, directory


def spoil(directory: Path, random: Random) -> str:
    """Damage a place of the largest file, or of another one; which."""
    files = [file for file in directory.rglob("*") if file.is_file() and file.stat().st_size > 50]
    files = sorted(file for file in files if not file.name.startswith("reserve"))
    path = random.choice([max(files, key=lambda file: file.stat().st_size), random.choice(files)])
    raw = bytearray(path.read_bytes())
    at = random.randrange(len(raw))
    page = at - at % 4_096
    how = random.choice(("head", "page", "noise", "text", "bit", "cut", "first"))
    if how == "head":
        raw[page : page + 8] = b"\xff" * len(raw[page : page + 8])
    elif how == "page":
        raw[page : page + 4_096] = random.randbytes(len(raw[page : page + 4_096]))
    elif how == "noise":
        raw[at : at + 40] = random.randbytes(len(raw[at : at + 40]))
    elif how == "text":
        letters = [place for place in range(len(raw)) if 97 <= raw[place] <= 122]
        raw[random.choice(letters or [0])] = 0xFF
    elif how == "bit":
        raw[at] ^= 1 << random.randrange(8)
    elif how == "cut":
        del raw[at:]
    else:
        raw[:100] = bytes(len(raw[:100]))
    path.write_bytes(raw)
    return f"{path.name}: {how} at {at}"


@pytest.mark.parametrize("first", [0, SEEDS])
def test_a_damaged_store_serves_or_ends_with_one_line(
    made: tuple[Callable[[Path], None], Path], tmp_path: Path, first: int
) -> None:
    store, sound = made
    ends = {}
    for seed in range(first, first + SEEDS):
        copy = tmp_path / str(seed)
        shutil.copytree(sound, copy)
        what = spoil(copy, Random(seed))
        ends[f"seed {seed}, {what}"] = _end(store, copy)
        shutil.rmtree(copy)
    assert {what: end for what, end in ends.items() if end not in {"", "told"}} == {}
    assert "told" in ends.values()


def _end(store: Callable[[Path], None], directory: Path) -> str:
    """How reading a store ends: "" where it works, "told" where it is told as it should be."""
    try:
        store(directory)
    except StorageError as error:
        return "told" if error.exit_code == 7 and "\n" not in str(error) else repr(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return repr(error)
    return ""
