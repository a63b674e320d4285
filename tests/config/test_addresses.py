from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.config.addresses import (
    ADDRESS_RULE,
    ProxyAddress,
    check_address,
    listens_everywhere,
    read_proxies,
    write_proxies,
)
from pubsub.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:5601", "tcp://127.0.0.1:5601"),
        (" localhost:5601 ", "tcp://localhost:5601"),
        ("tcp://[::1]:5601", "tcp://[::1]:5601"),
        ("ipc:///run/pubsub.sock", "ipc:///run/pubsub.sock"),
        ("inproc://here", "inproc://here"),
    ],
)
def test_an_address_to_connect_to(text: str, address: str) -> None:
    assert check_address(text) == address


@pytest.mark.parametrize("text", ["tcp://*:5601", "tcp://*:*", "tcp://127.0.0.1:0", "tcp://eth0:5601"])
def test_an_address_to_listen_on_may_leave_host_and_port_open(text: str) -> None:
    assert check_address(text, bind=True) == text


def test_who_listens_on_every_interface() -> None:
    assert listens_everywhere("tcp://*:1")
    assert listens_everywhere("tcp://0.0.0.0:1")
    assert not listens_everywhere("tcp://127.0.0.1:1")
    assert not listens_everywhere("ipc://x")


@given(st.text())
def test_any_text_is_an_address_or_is_refused_with_what_is_allowed(text: str) -> None:
    for bind in (False, True):
        try:
            address = check_address(text, bind=bind)
        except ValueError as error:
            complaint = str(error)
        else:
            complaint = ADDRESS_RULE
            assert check_address(address, bind=bind) == address
        assert "://" in complaint


def test_what_is_written_is_read(tmp_path: Path) -> None:
    proxies = (ProxyAddress("tcp://h:1", "tcp://h:2"), ProxyAddress("tcp://h:3", "tcp://h:3"))
    write_proxies(tmp_path / "proxies", proxies)
    assert read_proxies(tmp_path / "proxies") == proxies


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names 0 proxies; allowed: 1-64"),
        ("# nobody\n", "names 0 proxies"),
        ("tcp://h:1\ntcp://h\n", "line 2: 'tcp://h' is not allowed; allowed: tcp://HOST:PORT"),
        ("h:1 h:2 h:3", "line 1"),
        ("h:1\nh:1", "twice"),
        ("\n".join(f"h:{n}" for n in range(1, 66)), "names 65 proxies"),
    ],
)
def test_a_wrong_proxies_file_is_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "proxies"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        read_proxies(path)
    assert complaint in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_proxies_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_proxies(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="decode"):
        read_proxies(tmp_path / "binary")
    with pytest.raises(ConfigurationError, match="No such file"):
        write_proxies(tmp_path / "none" / "proxies", [])
