"""HOST:PORT: one parser, IPv6 in brackets, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.addresses import is_ipv6, is_loopback, is_name, join_place, split_place


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("localhost:0", "localhost", 0),
        ("[::1]:5601", "::1", 5601),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("[::ffff:10.0.0.1]:65535", "::ffff:10.0.0.1", 65_535),
        ("*:80", "*", 80),
    ],
)
def test_a_place_is_read_and_written_back(text: str, host: str, port: int) -> None:
    assert split_place(text) == (host, port)
    assert join_place(host, port) == text


@pytest.mark.parametrize(
    "text",
    ["", "80", "h:", ":80", "h:65536", "::1:80", "[::1]80", "[::1]", "[h]:80", "[127.0.0.1]:80", "[]:80", "a b:80",
     "h:80x", "h:٣", "h:-1", "[::1]:80\n", "[::1]]:80", "[::1:80"],
)  # fmt: skip
def test_an_invalid_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="IPv6 address in brackets"):
        split_place(text)


@given(st.ip_addresses(), st.integers(0, 65_535))
def test_each_parsed_address_is_written_back(address: object, port: int) -> None:
    assert split_place(join_place(str(address), port)) == (str(address), port)
    assert is_ipv6(str(address)) is (":" in str(address))
    assert not is_name(str(address))


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("localhost", True), ("LOCALHOST", True), ("::1", True), ("0:0:0:0:0:0:0:1", True), ("::ffff:127.0.0.1", True),
     ("::ffff:10.0.0.1", False), ("::", False), ("fe80::1%lo", False), ("localhost.example", False), ("", False)],
)  # fmt: skip
def test_loopback_hosts_are_recognized(host: str, only_here: bool) -> None:
    assert is_loopback(host) is only_here
