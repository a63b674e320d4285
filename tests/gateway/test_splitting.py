from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubsub.gateway.splitting import media_type, split_lines


@given(st.lists(st.binary().map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")), max_size=20))
def test_lines_come_unchanged_without_empty_ones(lines: list[bytes]) -> None:
    wanted = [line for line in lines if line]
    assert split_lines(b"\n".join(lines)) == wanted
    assert split_lines(b"\n".join(lines) + b"\n") == wanted
    assert split_lines(b"\r\n".join(lines)) == wanted


def test_a_carriage_return_within_a_line_stays() -> None:
    assert split_lines(b"a\rb\r\nc") == [b"a\rb", b"c"]


def test_the_media_type_is_returned_without_its_parameters() -> None:
    assert media_type("Application/X-NDJSON; charset=utf-8") == "application/x-ndjson"
    assert media_type("") == ""
