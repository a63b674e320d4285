"""The receiver of `pubsub http serve`: stores each request's body once, as a file of DIR/arrived.

The transaction of the receipt assigns a file's number, and the file is fsynced before that transaction commits. If the
process dies in between, the number is assigned again and its file is overwritten. A file above the last committed
number is removed at the start.

The rule is docs/explanation/reliable-http.md, Q5.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

from pubsub import console
from pubsub.base.paths import expanded
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import ConfigurationError, StorageError
from pubsub.http.receiver import Receiver
from pubsub.http.routes import Request
from pubsub.http.serving import listen, make_server
from pubsub.web.serving import HttpServer, Tls, prepare_process
from pubsub.web.tokens import OWNERS, read_users

FOLDER: Final = "arrived"

_TABLE: Final = (
    "create table if not exists arrived (number integer primary key, key text not null, client text not null,"
    " method text not null, path text not null)"
)


class Filing:
    """Stores bodies as files.

    Args:
        directory: parent of `arrived`, which is created if it is missing.

    Raises:
        StorageError: it cannot be created.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(str(self._folder), f"cannot be created: {error.strerror}") from None

    def clean(self, transaction: Transaction) -> None:
        """Remove files without a commit.

        Raises:
            StorageError: a file cannot be removed.
        """
        transaction.execute(_TABLE)
        last = transaction.execute("select coalesce(max(number), 0) from arrived").get
        try:
            for path in self._folder.iterdir():
                if path.suffix == ".part" or (path.name.isdecimal() and int(path.name) > last):
                    path.unlink()
        except OSError as error:
            raise StorageError(error.filename, f"cannot be removed: {error.strerror}") from None

    def store(self, request: Request, transaction: Transaction) -> dict[str, Any]:
        number = transaction.execute(
            "insert into arrived (key, client, method, path) values (?, ?, ?, ?) returning number",
            (request.key, request.client, request.method, request.path),
        ).get
        path = self._folder / f"{number:08d}"
        part = path.with_suffix(".part")
        try:
            with part.open("wb") as file:
                file.write(request.body)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StorageError(str(path), f"cannot be written: {error.strerror}") from None
        return {"number": number, "bytes": len(request.body)}


def filing_receiver(directory: Path, **options: Any) -> Receiver:
    """Return a receiver that stores the requests of all paths; options as `Receiver`'s."""
    filing = Filing(directory)
    receiver = Receiver(directory, **options)
    receiver.prepare(filing.clean)
    for route in (receiver.put, receiver.message, receiver.job):
        route("/{path:path}")(filing.store)
    return receiver


def run(
    directory: Path,
    bind: str,
    tokens: Path | None,
    certificate: Path | None,
    key: Path | None,
    *,
    insecure: bool,
    allow_hosts: tuple[str, ...] = (),
) -> None:
    """Receive until a signal arrives; one line on stdout shows the URL.

    Raises:
        ConfigurationError: the address, the tokens or the certificate cannot be used.
        StorageError: the directory cannot be used; StoreInUse if another process has it open.
    """
    console.keep_log("http", bind)
    known = read_users(tokens, OWNERS, plain=True) if tokens is not None else None
    if known is not None and not known.by_digest:
        raise ConfigurationError(f"{tokens} has no token; write lines of NAME th_SHA256")
    prepare_process()
    receiver = filing_receiver(expanded(directory), tokens=known, insecure=insecure, allow_hosts=allow_hosts)
    tls = Tls(str(certificate), str(key) if key else None) if certificate else None
    listening = listen(bind, insecure=insecure or known is not None)
    asyncio.run(_serve(receiver, make_server(receiver, listening, tls, owns_loop=True)))


async def _serve(receiver: Receiver, server: HttpServer) -> None:
    async with receiver.lifespan():  # This also closes the directory if the server cannot start.
        await server.run_process(lambda url: console.announce(f"receiving at {url}"))
