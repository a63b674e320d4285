"""The keys of a process before it opens a socket: no incomplete set, and each refusal names the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.errors import AuthorizedRefused, ConfigurationError
from pubsub.security.audit import Audit
from pubsub.security.authorized import parse
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_public
from pubsub.security.pairs import Pair, new_pair
from pubsub.security.process_keys import InMemory, ProcessKeys, check_key_settings, expected_keys, find_keys, own_pair
from tests.security.keyring import key, pk

OUTSIDE = "tcp://10.0.0.1:5601"
PAIR = new_pair()


def made(path: Path, pair: Pair = PAIR) -> Path:
    make_key_file(path, pair.secret)
    return path


def test_the_pair_of_a_process_is_in_the_named_or_the_usual_file(tmp_path: Path) -> None:
    usual, other = made(tmp_path / "key"), new_pair()
    assert own_pair("proxy", "p1", None, usual) == PAIR
    assert own_pair("proxy", "p1", made(tmp_path / "other", other), usual) == other
    assert own_pair("proxy", "p1", None, tmp_path / "none") is None


def test_a_missing_named_key_file_is_refused_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"pubsub keys new proxy p1 --out {tmp_path}/none$"):
        own_pair("proxy", "p1", tmp_path / "none", tmp_path / "key")


def test_a_usual_key_file_readable_by_others_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "key").chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        own_pair("proxy", "p1", None, tmp_path / "key")


@pytest.mark.parametrize(
    ("pair", "authorized", "outside", "insecure", "refused"),
    [
        (PAIR, None, "", False, "proxy p1 has a key, but no list of authorized keys: .*--authorized FILE"),
        (PAIR, None, OUTSIDE, True, "no list of authorized keys"),
        (None, Path("authorized"), "", False, "but a list of authorized keys, authorized: pubsub keys new proxy p1$"),
        (None, Path("authorized"), OUTSIDE, True, "has no key"),
        (None, None, OUTSIDE, False,
         f"^proxy p1 would listen on {OUTSIDE} without keys, for anyone who reaches it: pubsub keys new proxy p1, "
         "or --insecure$"),
        (None, None, OUTSIDE, True, ""),
        (None, None, "", False, ""),
        (PAIR, Path("authorized"), OUTSIDE, False, ""),
        (PAIR, Path("authorized"), "", False, ""),
    ],
)  # fmt: skip
def test_a_listening_process_needs_key_and_access_list_or_a_private_address(
    pair: Pair | None, authorized: Path | None, outside: str, insecure: bool, refused: str
) -> None:
    if refused:
        with pytest.raises(ConfigurationError, match=refused):
            check_key_settings("proxy", "p1", pair, authorized, outside, insecure)
    else:
        check_key_settings("proxy", "p1", pair, authorized, outside, insecure)


def test_the_keys_of_a_process_make_its_authorizer(tmp_path: Path) -> None:
    made(tmp_path / "key")
    (tmp_path / "authorized").write_text(f"client alice {pk('alice')} put=*\n")
    keys = find_keys("proxy", "p1", None, tmp_path / "key", tmp_path / "authorized", OUTSIDE, insecure=False)
    assert keys is not None
    assert keys.pair == PAIR
    authorizer = keys.authorizer(Audit(None, "proxy p1"), 0.0, 1.0)
    assert authorizer.access.user(key("alice")) is not None
    (tmp_path / "authorized").write_text("client alice")
    with pytest.raises(AuthorizedRefused, match="no line feed"):
        keys.authorizer(Audit(None, "proxy p1"), 0.0, 1.0)
    assert find_keys("proxy", "p1", None, tmp_path / "none", None, "", insecure=False) is None


def test_a_changed_access_list_in_memory_counts_at_the_next_check() -> None:
    source = InMemory(parse(f"client alice {pk('alice')}\n".encode()))
    authorizer = ProcessKeys(PAIR, source).authorizer(Audit(None, "proxy p1"), 0.0, 1.0)
    assert not authorizer.look(2.0, 3.0)
    source.authorized = parse(f"client bob {pk('bob')}\n".encode())
    assert authorizer.look(4.0, 5.0)
    assert authorizer.access.user(key("bob")) is not None
    assert authorizer.access.user(key("alice")) is None


def test_a_connecting_process_has_its_key_and_the_proxies_keys_or_neither() -> None:
    proxies = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
    assert expected_keys("server", "s1", None, proxies, ()) == ()
    assert expected_keys("server", "s1", PAIR, proxies, (f"{pk('old')},{pk('new')}", pk("two"))) == (
        (key("old"), key("new")),
        (key("two"),),
    )
    with pytest.raises(ConfigurationError, match="server s1 has none: pubsub keys new server s1"):
        expected_keys("server", "s1", None, proxies, (pk("one"), pk("two")))
    with pytest.raises(ConfigurationError, match=r"--proxies-file FILE.*--proxy-key"):
        expected_keys("server", "s1", PAIR, proxies, ())
    assert expected_keys("server", "s1", PAIR, ("inproc://p1",), ()) == ()


def test_the_repr_of_process_keys_does_not_show_the_secret_half() -> None:
    assert repr(PAIR.secret) not in repr(ProcessKeys(PAIR, InMemory(parse(b"#\n"))))
    assert format_public(PAIR.public).startswith("pk_")
