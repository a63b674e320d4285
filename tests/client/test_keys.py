"""Sources of a client's keys, and rejections before anything is opened."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
import zmq

from pubsub.client import Client
from pubsub.client.client_base import make_settings
from pubsub.client.session_parts import find_keys
from pubsub.config import ClientSettings
from pubsub.config.addresses import ProxyAddress, write_proxies
from pubsub.errors import CallerError, ConfigurationError
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_public, format_secret
from pubsub.security.pairs import new_pair
from pubsub.security.process_keys import ClientKeys

ALICE, PROXY, OTHER = new_pair(), new_pair(), new_pair()
ADDRESS = "tcp://127.0.0.1:9"
KEY = format_public(PROXY.public)


def settings(directory: Path, **named: object) -> ClientSettings:
    return ClientSettings(directory=directory, **{"proxies": (ADDRESS,), **named})  # type: ignore[arg-type]


def test_a_client_without_a_key_has_none(tmp_path: Path) -> None:
    assert find_keys("alice", settings(tmp_path)) is None


def test_the_key_of_a_client_is_beside_its_state(tmp_path: Path) -> None:
    make_key_file(tmp_path / "alice.key", ALICE.secret)
    make_key_file(tmp_path / "bob.key", OTHER.secret)
    keys = find_keys("alice", settings(tmp_path, proxy_keys=(KEY,)))
    assert keys == ClientKeys(ALICE, ((PROXY.public,),))


def test_another_key_file_is_named(tmp_path: Path) -> None:
    make_key_file(tmp_path / "alice.key", OTHER.secret)
    make_key_file(tmp_path / "elsewhere", ALICE.secret)
    both = f"{KEY},{format_public(OTHER.public)}"
    keys = find_keys("alice", settings(tmp_path, key_file=tmp_path / "elsewhere", proxy_keys=(both,)))
    assert keys == ClientKeys(ALICE, ((PROXY.public, OTHER.public),))


def test_a_client_within_the_process_uses_no_key(tmp_path: Path) -> None:
    make_key_file(tmp_path / "alice.key", ALICE.secret)
    assert find_keys("alice", settings(tmp_path, proxies=("inproc://p1",))) is None


@pytest.mark.parametrize(
    ("has", "named", "text"),
    [
        (
            False,
            {"proxy_keys": (KEY,)},
            f"{ADDRESS} has a key, and client alice has none: pubsub keys new client alice",
        ),
        (True, {}, "client alice has a key, but the proxies are named without keys"),
        (False, {"key_file": "gone.key", "proxy_keys": (KEY,)}, "gone.key: No such file or directory; to make one: "),
    ],
    ids=["the proxies alone", "the client alone", "a key file that is not there"],
)
def test_an_incomplete_set_of_keys_is_refused_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: bool, named: dict[str, object], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if has:
        make_key_file(tmp_path / "alice.key", ALICE.secret)
    with pytest.raises(ConfigurationError) as refused:
        Client("alice", settings=settings(tmp_path, **named))
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "alice.db").exists()


def test_a_key_file_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    make_key_file(tmp_path / "alice.key", ALICE.secret)
    (tmp_path / "alice.key").chmod(0o640)
    with pytest.raises(ConfigurationError, match=r"can be read by others .*: chmod 600") as refused:
        Client("alice", settings=settings(tmp_path, proxy_keys=(KEY,)))
    assert format_secret(ALICE.secret) not in "".join(traceback.format_exception(refused.value))


def test_a_program_names_the_file_of_proxies_and_the_key_file(tmp_path: Path) -> None:
    write_proxies(tmp_path / "proxies", [ProxyAddress(ADDRESS, ADDRESS, (PROXY.public,))])
    make_key_file(tmp_path / "key", ALICE.secret)
    with Client("alice", proxies_file=tmp_path / "proxies", key_file=tmp_path / "key", directory=tmp_path) as alice:
        assert alice.settings.proxy_keys == (KEY,)
        assert alice.settings.key_file == tmp_path / "key"
        assert alice._session.keys == ClientKeys(ALICE, ((PROXY.public,),))


def test_keys_of_other_proxies_are_not_used_for_the_named_ones(tmp_path: Path) -> None:
    given = settings(tmp_path, proxy_keys=(KEY,))
    other, same = "tcp://127.0.0.1:10", ADDRESS

    def made(*proxies: str) -> ClientSettings:
        return make_settings(given, proxies, None, None, None, None)

    assert made(other).proxy_keys == ()
    assert made(same).proxy_keys == (KEY,)
    write_proxies(tmp_path / "proxies", [ProxyAddress(ADDRESS, ADDRESS, (OTHER.public,))])
    replaced = make_settings(given, None, tmp_path / "proxies", None, None, None)
    assert replaced.proxy_keys == (format_public(OTHER.public),)


def test_keys_are_given_in_memory(tmp_path: Path) -> None:
    keys = ClientKeys(ALICE, ((PROXY.public,),))
    with Client("alice", settings=settings(tmp_path), keys=keys) as alice:
        assert alice._session.keys is keys


def test_a_key_file_that_is_no_path_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="key_file is a path, not int"):
        Client("alice", settings=settings(tmp_path), key_file=3)  # type: ignore[arg-type]


def test_keys_show_no_secret() -> None:
    keys = ClientKeys(ALICE, ((PROXY.public,),))
    for secret in (repr(ALICE.secret), ALICE.secret.hex(), format_secret(ALICE.secret)):
        assert secret not in repr(keys) + str(keys)


def test_the_context_of_a_client_with_keys_may_be_shared(tmp_path: Path) -> None:
    context = zmq.Context()
    keys = ClientKeys(ALICE, ((PROXY.public,),))
    with Client("alice", settings=settings(tmp_path), keys=keys, context=context):
        assert not context.closed
    context.term()
    assert context.closed
