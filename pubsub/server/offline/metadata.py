"""Keys and headers of messages in an export: a file for each key, and a file for each message's headers.

    TOPIC/keys/LOG.OFFSET       the key, unchanged
    TOPIC/headers/LOG.OFFSET    a line for each header: its name, `=`, and its value, percent-encoded

A message without a key or headers has no such file. A topic without any has no such folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from pubsub.errors import ConfigurationError, PubsubError
from pubsub.protocol.batch import Buffer, decode_blocks, decode_keys
from pubsub.protocol.headers import decode_headers, encode_headers


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
