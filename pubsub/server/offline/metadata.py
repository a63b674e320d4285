"""Keys and headers of messages, and settings of topics, in an export.

    TOPIC/keys/LOG.OFFSET       the key, unchanged
    TOPIC/headers/LOG.OFFSET    a line for each header: its name, `=`, and its value, percent-encoded
    TOPIC/settings              JSON, as the store has it
    TOPIC/removal               JSON, as the store has it, of a topic that has let records go

A message without a key or headers has no such file. A topic without any has no such folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from pubsub.errors import ConfigurationError, PubsubError
from pubsub.protocol.batch import Buffer, decode_blocks, decode_keys
from pubsub.protocol.headers import decode_headers, encode_headers
from pubsub.server.topic.removal import NOTHING, Removal
from pubsub.server.topic.settings import DEFAULTS, Settings

_SETTINGS: Final = "settings"
_REMOVAL: Final = "removal"

_Kept = TypeVar("_Kept", Settings, Removal)


def write_metadata(body: Buffer, first: int, topic: Path, log: str, offsets: range) -> None:
    """Write the keys and headers of messages.

    Args:
        body: the intact body of their batch.
        first: offset of the first record of the batch.
        topic: the topic's folder.
        log, offsets: positions of the messages to write.
    """
    for folder, values in (("keys", decode_keys(body)), ("headers", [_text(one) for one in decode_blocks(body)])):
        for offset in offsets if values else ():
            if values[offset - first]:
                (topic / folder).mkdir(exist_ok=True)
                (topic / folder / f"{log}.{offset}").write_bytes(values[offset - first])


def read_metadata(topic: Path, names: Sequence[str]) -> tuple[list[bytes], list[bytes]]:
    """Return the keys, and the headers in a batch's form, of the messages with these names; empty without a folder.

    Raises:
        OSError: a file cannot be read.
        ConfigurationError: a headers file is malformed.
    """
    return _read(topic / "keys", names, lambda path: path.read_bytes()), _read(topic / "headers", names, _block)


def _read(folder: Path, names: Sequence[str], read: Callable[[Path], bytes]) -> list[bytes]:
    if not folder.exists():
        return []
    return [read(folder / name) if (folder / name).exists() else b"" for name in names]


def _text(block: bytes) -> bytes:
    lines = [f"{name}={quote_from_bytes(value, safe='')}\n" for name, value in decode_headers(block).items()]
    return "".join(lines).encode("ascii")


def _block(path: Path) -> bytes:
    try:
        lines = path.read_bytes().decode("ascii").splitlines()
        pairs = [line.partition("=")[::2] for line in lines]
        return encode_headers({name: unquote_to_bytes(value) for name, value in pairs})
    except (UnicodeDecodeError, PubsubError) as error:
        raise ConfigurationError(f"{path} is not a valid headers file: {error}") from None


def write_kept(folder: Path, settings: Settings, removal: Removal) -> None:
    """Write the settings and the removals of the topic in this folder, except defaults."""
    for name, value, default in ((_SETTINGS, settings, DEFAULTS), (_REMOVAL, removal, NOTHING)):
        if value != default:
            (folder / name).write_bytes(msgspec.json.encode(value))


def read_kept(folder: Path) -> tuple[Settings, Removal]:
    """Return the settings and the removals of the topic in this folder; an export of an earlier release has none.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    return _decoded(folder / _SETTINGS, DEFAULTS), _decoded(folder / _REMOVAL, NOTHING)


def _decoded(path: Path, missing: _Kept) -> _Kept:
    try:
        return msgspec.json.decode(path.read_bytes(), type=type(missing))
    except FileNotFoundError:
        return missing
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
