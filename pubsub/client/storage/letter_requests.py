"""Ask the process that has a client open to change its dead letters, since no other process can open its state file.

A request is a file in the directory `ID.requests` beside the state file. It appears complete, by a rename. The running
client renames it before it acts, and writes its answer to a file of its own. So a command that gives up knows whether
its request was taken up. A request has no effect a second time: a letter that left the table is none any more.

The rule is docs/explanation/retries.md, J9.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pubsub.errors import StorageError

REQUESTS_MAX: Final = 100
"""Requests that are taken up at a time."""

REQUEST_BYTES_MAX: Final = 1024 * 1024
"""Bytes of one request; a larger one is answered with an error."""

LOOK_SECONDS: Final = 1.0
"""Time between two looks of `process` for requests."""

ANSWER_SECONDS: Final = 10.0
"""Longest wait for a client to take a request up, and for its answer after that."""

LEFT_SECONDS: Final = 3 * ANSWER_SECONDS
"""Age of a request that a killed command left: a command that runs has removed its own before."""

POLL_SECONDS: Final = 0.05

ASKED, TAKEN, ANSWERED = ".json", ".taken", ".answer"


def folder_of(state: Path) -> Path:
    """Return the directory of the requests to the client with a state file."""
    return state.with_suffix(".requests")


def ask(state: Path, request: dict[str, Any]) -> dict[str, Any] | None:
    """Write a request, and return the answer of the running client; None: it took nothing up, and never will.

    Raises:
        StorageError: the request cannot be written, or was taken up and not answered.
    """
    folder = folder_of(state)
    name = f"{time.time_ns():020}-{secrets.token_hex(4)}"
    asked, taken, answered = (folder / f"{name}{suffix}" for suffix in (ASKED, TAKEN, ANSWERED))
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        part = folder / f"{name}.part"
        part.write_text(json.dumps(request), encoding="utf-8")
        part.rename(asked)
    except OSError as error:
        raise StorageError(str(folder), f"cannot be written to: {error.strerror}") from None
    try:
        came = _appears(answered)
    except BaseException:  # Ctrl-C: nobody waits for the answer any more.
        asked.unlink(missing_ok=True)
        raise
    if not came:
        try:
            asked.unlink()
        except FileNotFoundError:  # It was taken up at the last moment.
            if not _appears(answered):
                reason = "the running client took the request up and did not answer; list the dead letters to see"
                raise StorageError(str(taken), reason) from None
        else:
            _leave(folder)
            return None
    found: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    answered.unlink()
    _leave(folder)
    return found


def _leave(folder: Path) -> None:
    with suppress(OSError):  # Another command has a request there.
        folder.rmdir()


def _appears(path: Path) -> bool:
    deadline = time.monotonic() + ANSWER_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def waiting(folder: Path) -> list[Path]:
    """Return the oldest requests that no process has taken up. Those that a killed command left are removed."""
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix == ASKED)[:REQUESTS_MAX]
        left = f"{time.time_ns() - int(LEFT_SECONDS * 1e9):020}"
        for path in found:
            if path.name < left:
                path.unlink(missing_ok=True)
        return [path for path in found if path.name >= left]
    except OSError:
        return []


def take_up(path: Path) -> dict[str, Any] | None:
    """Take a request up and return it; None: it was given up, or cannot be read."""
    taken = path.with_suffix(TAKEN)
    try:
        path.rename(taken)
        if taken.stat().st_size > REQUEST_BYTES_MAX:
            answer(path, {"error": f"a request has at most {REQUEST_BYTES_MAX:,} bytes; name fewer dead letters"})
            return None
        found = json.loads(taken.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def answer(path: Path, found: dict[str, Any]) -> None:
    """Answer a request that was taken up. Without room on the disk, the command that asks sees no answer."""
    part = path.with_suffix(".half")
    with suppress(OSError):
        part.write_text(json.dumps(found), encoding="utf-8")
        part.rename(path.with_suffix(ANSWERED))
    with suppress(OSError):
        path.with_suffix(TAKEN).unlink()
