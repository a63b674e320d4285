"""The keys of a process with services, as its options name them: nothing is half set up."""

from __future__ import annotations

import pytest

from pubsub.errors import ConfigurationError, InvalidKey
from pubsub.security.keys import format_public, format_secret
from pubsub.security.pairs import new_pair
from pubsub.services.client import ServiceClient
from pubsub.services.keys import find_locks
from pubsub.services.worker import Worker
from tests.services.running import Running

HERE, OUT = "tcp://127.0.0.1:5555", "tcp://10.0.0.1:5555"


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("PUBSUB_CLIENT_KEY_FILE", "PUBSUB_AUTHORIZED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def made(tmp_path):
    """A key file, its public key, and an authorized file that lets it call and serve."""
    pair = new_pair()
    key, authorized = tmp_path / "key", tmp_path / "authorized"
    key.write_text(format_secret(pair.secret) + "\n")
    key.chmod(0o600)
    authorized.write_text(f"client all {format_public(pair.public)} call=* serve=*\n")
    authorized.chmod(0o600)
    return str(key), format_public(pair.public), str(authorized)


def test_a_service_without_keys_accepts_only_this_host():
    locks = find_locks("queue", binds=[HERE])
    assert (locks.listening, locks.pair, locks.curve(HERE)) == (None, None, None)
    with pytest.raises(ConfigurationError, match="--insecure"):
        find_locks("queue", binds=[HERE, OUT])
    assert find_locks("queue", binds=[OUT], insecure=True).listening is None


def test_a_key_without_an_access_list_or_the_reverse_is_refused(made):
    key, public, authorized = made
    for given in (
        {"binds": [HERE], "key_file": key},
        {"binds": [HERE], "authorized": authorized},
        {"dials": [HERE], "key_file": key},
        {"dials": [HERE], "expected": [public]},
        {"dials": [HERE, OUT, "tcp://10.0.0.2:1"], "key_file": key, "expected": [public, public]},
        {"dials": [HERE], "key_file": "/nowhere", "expected": [public]},
    ):
        with pytest.raises(ConfigurationError):
            find_locks("queue", **given)
    with pytest.raises(InvalidKey):
        find_locks("queue", dials=[HERE], key_file=key, expected=["nonsense"])


def test_the_environment_names_files_too_if_keys_are_wanted(made, monkeypatch):
    key, public, authorized = made
    monkeypatch.setenv("PUBSUB_CLIENT_KEY_FILE", key)
    assert find_locks("client", dials=[HERE]).pair is None
    assert find_locks("client", dials=[HERE], expected=[public]).pair is not None
    assert find_locks("queue", binds=[HERE]).listening is None
    monkeypatch.setenv("PUBSUB_AUTHORIZED", authorized)
    assert find_locks("queue", binds=[HERE]).listening is not None


def test_each_address_has_its_keys_or_all_have_one(made):
    key, public, _ = made
    other = format_public(new_pair().public)
    one = find_locks("client", dials=[HERE, OUT], key_file=key, expected=[f"{public},{other}"])
    assert len(one.curve(HERE).expected) == len(one.curve(OUT).expected) == 2
    each = find_locks("client", dials=[HERE, OUT], key_file=key, expected=[public, other])
    assert each.curve(HERE).expected != each.curve(OUT).expected
    assert each.curve("inproc://here") is None


def test_library_and_files_go_together(made):
    key, public, authorized = made
    with Running() as running:
        server = running.worker(Worker("x", bind="tcp://127.0.0.1:0", key_file=key, authorized=authorized))
        with ServiceClient(server.address, kind="lazy", key_file=key, broker_key=public, timeout=20.0) as client:
            assert client.call("", b"x").body == b"x"
