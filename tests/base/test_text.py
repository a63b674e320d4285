"""Byte order marks: of every file that a person writes, and of lines that a shell pipes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import pytest

from pubsub.base.text import without_mark
from pubsub.client.inputs import _lines
from pubsub.config.addresses import read_proxies
from pubsub.config.loading import load
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError
from pubsub.security.files import read_authorized, read_key_file
from pubsub.security.keys import format_secret
from pubsub.web.tokens import OWNERS, read_token, read_users
from tests.security.keyring import key, pk

MARK = b"\xef\xbb\xbf"
TOKEN = "t" * 43


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert without_mark(MARK + b"a") == without_mark(b"a") == b"a"
    assert without_mark(MARK + MARK) == MARK
    assert without_mark(b"") == b""
    for encoding in ("utf-16-le", "utf-16-be"):
        with pytest.raises(UnicodeDecodeError, match="UTF-16; save it as UTF-8"):
            without_mark("\ufeffabc".encode(encoding))


def read_settings(path: Path) -> int:
    return load(ClientSettings, {}, environment={}, file=path).settings.window


def contents(found: object) -> object:
    """What is compared: not at which address it is."""
    slots = getattr(found, "__slots__", ())
    state = {name: getattr(found, name) for name in slots} or getattr(found, "__dict__", found)
    return repr(state)


def read_plain(path: Path) -> Any:
    return read_users(path, OWNERS, plain=True)


FILES: list[tuple[Any, bytes]] = [
    (read_proxies, b"tcp://127.0.0.1:5601\r\n"),
    (read_settings, b"[client]\r\nwindow = 4\r\n"),
    (read_users, b"me th_" + b"0" * 64 + b" put=*\r\n"),
    (read_plain, f"me {TOKEN}\r\n".encode()),
    (read_token, f"{TOKEN}\r\n".encode()),
    (read_key_file, f"{format_secret(key('a'))}\r\n".encode()),
    (read_authorized, f"client a {pk('b')}\r\n".encode()),
]


@pytest.mark.parametrize(("read", "content"), FILES, ids=lambda value: getattr(value, "__name__", ""))
def test_every_file_written_by_a_person_may_begin_with_a_byte_order_mark(
    read: Any, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.touch(0o600)
    path.write_bytes(content)
    without = read(path)
    path.write_bytes(MARK + content)
    assert contents(read(path)) == contents(without)
    path.write_bytes(content.decode().encode("utf-16"))
    with pytest.raises(ConfigurationError) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_lines_of_a_put_begin_behind_a_byte_order_mark() -> None:
    for content, lines in (
        (MARK + b"a\n" + MARK + b"b\n", [b"a\n", MARK + b"b\n"]),
        (b"a\nb", [b"a\n", b"b"]),
        (MARK, [b""]),
        (b"", []),
    ):
        assert list(_lines(cast(Any, io.BytesIO(content)), Path("-"))) == lines
