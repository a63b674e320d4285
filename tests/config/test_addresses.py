from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

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
from pubsub.security.keys import format_secret
from tests.security.keyring import key, pk, public_keys


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
def test_an_address_to_connect_to_is_checked(text: str, address: str) -> None:
    assert check_address(text) == address


@pytest.mark.parametrize("text", ["tcp://s2@10.0.0.2:5701", "s2@10.0.0.2:5701"])
def test_an_address_must_be_a_place_without_a_server_id(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        check_address(text)


@pytest.mark.parametrize("text", ["tcp://*:5601", "tcp://*:*", "tcp://127.0.0.1:0", "tcp://eth0:5601"])
def test_an_address_to_listen_on_may_leave_host_and_port_open(text: str) -> None:
    assert check_address(text, bind=True) == text


def test_an_address_of_every_interface_is_recognized() -> None:
    assert listens_everywhere("tcp://*:1")
    assert listens_everywhere("tcp://0.0.0.0:1")
    assert not listens_everywhere("tcp://127.0.0.1:1")
    assert not listens_everywhere("ipc://x")


@given(st.text())
def test_any_text_is_an_address_or_is_refused_with_the_rule(text: str) -> None:
    for bind in (False, True):
        try:
            address = check_address(text, bind=bind)
        except ValueError as error:
            complaint = str(error)
        else:
            complaint = ADDRESS_RULE
            assert check_address(address, bind=bind) == address
        assert "://" in complaint


def test_written_proxies_are_read_back(tmp_path: Path) -> None:
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


def test_a_missing_proxies_file_or_one_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_proxies(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="decode"):
        read_proxies(tmp_path / "binary")
    with pytest.raises(ConfigurationError, match="No such file"):
        write_proxies(tmp_path / "none" / "proxies", [])


def test_written_proxies_with_keys_are_read_back(tmp_path: Path) -> None:
    proxies = (
        ProxyAddress("tcp://h:1", "tcp://h:2", (key("a"),)),
        ProxyAddress("tcp://h:3", "tcp://h:3", (key("old"), key("new"))),
    )
    write_proxies(tmp_path / "proxies", proxies)
    assert read_proxies(tmp_path / "proxies") == proxies


@given(st.lists(public_keys, min_size=1, max_size=4, unique=True))
def test_keys_of_a_proxy_stay_in_their_order(keys: list[bytes]) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "proxies"
        write_proxies(path, [ProxyAddress("tcp://h:1", "tcp://h:1", tuple(keys))])
        (found,) = read_proxies(path)
        assert found.keys == tuple(keys)


def test_a_handwritten_proxies_file_with_keys_is_read(tmp_path: Path) -> None:
    path = tmp_path / "proxies"
    path.write_text(f"# ours\nh:1 h:2 {pk('a')}  # the first\n\nh:3\t{pk('old')},{pk('new')}\n")
    assert read_proxies(path) == (
        ProxyAddress("tcp://h:1", "tcp://h:2", (key("a"),)),
        ProxyAddress("tcp://h:3", "tcp://h:3", (key("old"), key("new"))),
    )


SECRET = format_secret(key("secret"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            f"h:1 {pk('a')}\nh:2\n",
            "line 2: tcp://h:2 has no key, and other lines have one; put its key, pk_…, at the end",
        ),
        (f"h:1\nh:2 {pk('a')}\n", "line 1: tcp://h:1 has no key"),
        (f"h:1 {pk('a')}\nh:2 {pk('a')}\n", "line 2: its key stands in line 1 too"),
        (f"h:1 {pk('a')}\nh:2 {pk('b')},{pk('a')}\n", "line 2: its key stands in line 1 too"),
        (f"h:1 {pk('a')},{pk('a')}\n", "line 1: 'h:1 pk_"),
        (f"h:1 {','.join(pk(str(each)) for each in range(5))}\n", "1-4 keys of a proxy, each once"),
        ("h:1 pk_short\n", "a public key of the proxy, pk_…; of this one: it is not pk_ and 43 characters"),
        (f"h:1 {pk('a')},\n", "of this one: it does not begin with pk_"),
        (f"{pk('a')}\n", "line 1: 'pk_"),
        (f"h:1 h:2 h:3 {pk('a')}\n", "one address, or two"),
        (f"h:1 {pk('a')} h:2\n", "one address, or two"),
        (f"h:1 {SECRET}\n", "line 1: a line with a secret key is not allowed; allowed: a public key"),
        (f"h:1 {pk('a')},{SECRET}\n", "line 1: a line with a secret key is not allowed"),
    ],
)
def test_an_invalid_key_in_a_proxies_file_is_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "proxies"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        read_proxies(path)
    assert complaint in str(raised.value)
    assert SECRET[3:20] not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_proxies_file_is_replaced_at_once(tmp_path: Path) -> None:
    """A concurrent reader sees the complete old file, also through a link; its mode stays."""
    path, link = tmp_path / "proxies", tmp_path / "link"
    write_proxies(path, [ProxyAddress("tcp://h:1", "tcp://h:1")])
    path.chmod(0o640)
    link.symlink_to(path)
    with path.open() as old:
        write_proxies(link, [ProxyAddress("tcp://h:2", "tcp://h:2")])
        assert "tcp://h:1\n" in old.read()
    assert link.is_symlink()
    assert [proxy.clients for proxy in read_proxies(path)] == ["tcp://h:2"]
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "proxies"]
