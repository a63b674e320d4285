"""Export a client's state as the directory tree of Pires et al., section 5.1.

client_{id}/{topic}/last_get_id        ID of the last message taken, or -1
client_{id}/{topic}/last_put_counter   counter of the last message put and not discarded
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pubsub.client.files import file_errors
from pubsub.client.session import Session
from pubsub.errors import CallerError
from pubsub.protocol.names import file_name, format_position


def export_client(session: Session, directory: Path) -> Path:
    """Write the state of an open session below `directory`, completely or not at all.

    Returns:
        The client's directory.

    Raises:
        CallerError: it exists already, or cannot be written.
        StorageError: the disk is full or fails.
    """
    with session.entered():
        puts = {topic: chain.previous for topic, chain in session.core.outbox.chains.items() if chain.previous}
        gets = {topic: sub.cursor.position for topic, sub in session.core.subscriptions.items() if sub.intent.on}
    root = directory / f"client_{session.name}"
    part = directory / f".{root.name}.part"
    with file_errors(root):
        if os.path.lexists(root):
            raise CallerError(f"{root} exists already, and an export replaces nothing: name another directory")
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            for topic in sorted(puts.keys() | gets.keys()):
                folder = part / file_name(topic)
                folder.mkdir()
                if topic in gets:
                    (folder / "last_get_id").write_text(f"{format_position(gets[topic])}\n", encoding="ascii")
                if topic in puts:
                    (folder / "last_put_counter").write_text(f"{puts[topic]}\n", encoding="ascii")
            part.rename(root)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return root
