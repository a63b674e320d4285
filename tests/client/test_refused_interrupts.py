"""A refused or denied client stays sound when interrupted anywhere, forked or collected."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from keyed import BOB, EVERYTHING, SECONDS, Keyed, keyed, line, pair, public, wait_until
from striking import Strike, Striker

from pubsub.errors import AfterFork, KeyRefused, NotAllowed
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_secret

SAMPLE = 12
"""Interrupted places in a call."""

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Keyed]:
    with keyed(tmp_path) as made:
        yield made


@pytest.mark.parametrize(("lines", "error"), [((BOB,), KeyRefused), ((line("client", "alice"), BOB), NotAllowed)])
def test_a_refused_and_interrupted_call_loses_nothing_and_does_nothing_twice(
    cluster: Keyed, lines: tuple[str, ...], error: type[Exception]
) -> None:
    chance = random.Random(1)
    cluster.authorize(*lines)
    tried, sure = set(), set()
    client = cluster.client(timeout_seconds=SECONDS)

    def put() -> None:
        body = b"%d" % len(tried)
        tried.add(body)
        try:
            client.put("orders", body)
        except error:
            sure.add(body)

    measure = Striker(0)
    measure.run(put)
    was_interrupted = 0
    for at in sorted(chance.sample(range(1, measure.count), min(SAMPLE, measure.count - 1))):
        striker = Striker(at)
        try:
            striker.run(put)
        except Strike:
            was_interrupted += 1
        put()
    assert was_interrupted
    client.close()
    with cluster.client("bob") as bob:
        bob.subscribe("orders")
        cluster.authorize(EVERYTHING, BOB)
        with cluster.client() as client:
            client.flush()
        got = Counter(message.body for message in bob.messages("orders", timeout=0.5))
    assert set(got.values()) == {1}
    assert sure <= set(got) <= tried


def test_a_fork_of_a_client_that_is_refused_leaves_the_parent_alone(cluster: Keyed) -> None:
    cluster.authorize(BOB)
    with cluster.client() as client:
        with pytest.raises(KeyRefused):
            client.put("orders", b"1")
        child = os.fork()
        if not child:
            try:
                client.put("orders", b"2")
            except AfterFork:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        cluster.authorize(EVERYTHING, BOB)
        wait_until(lambda: not client._session.core.refusing.refusals)
        client.flush()


def test_a_refused_client_that_is_not_closed_warns_and_is_closed(cluster: Keyed) -> None:
    cluster.authorize(BOB)
    client = cluster.client()
    with pytest.raises(KeyRefused):
        client.put("orders", b"1")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del client
        gc.collect()
    said = [str(warning.message) for warning in told]
    assert said == ["client alice was not closed: use it in a with block, or call close()"]
    wait_until(lambda: not _in_use(cluster))


def _in_use(cluster: Keyed) -> bool:
    try:
        cluster.client().close()
    except Exception:  # noqa: BLE001 - any error means that it is in use.
        return True
    return False


def test_ctrl_c_ends_a_command_that_waits_for_a_proxy_while_the_other_refuses(cluster: Keyed, tmp_path: Path) -> None:
    make_key_file(tmp_path / "key", pair("stranger").secret)
    (tmp_path / "body").write_bytes(b"x")
    command = [sys.executable, "-m", "pubsub", "client", "stranger", "put", "t", str(tmp_path / "body")]
    command += ["--key", str(tmp_path / "key"), "--dir", str(tmp_path), "--timeout-seconds", "60"]
    command += ["--proxy", cluster.proxy.address, "--proxy", "tcp://127.0.0.1:9"]
    command += ["--proxy-key", public("p1"), "--proxy-key", public("p2")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: cluster.proxy.count("handshakes_refused_key"))
    assert process.stderr is not None
    refused = f"client stranger: proxy {cluster.proxy.address} does not know the key"
    said = [process.stderr.readline()]
    while said[-1] and not said[-1].startswith(refused):  # The warning: it is waiting now.
        said.append(process.stderr.readline())
    assert said[-1]
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert format_secret(pair("stranger").secret) not in "".join(said) + rest
