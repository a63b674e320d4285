"""The process: its address, its accepted users, TLS, its end, and its state after a restart."""

from __future__ import annotations

import ssl
from itertools import islice
from pathlib import Path

import httpx2
import pytest

from pubsub.errors import ConfigurationError
from pubsub.gateway.process import GatewaySettings, listen
from pubsub.web.tokens import digest, new_token, read_users
from tests.faults.cluster import Cluster, until
from tests.gateway.serving import CLIENT, Gateway

pytestmark = pytest.mark.slow
CERTIFICATE = Path(__file__).parent / "localhost.pem"
"""A certificate of nobody's, with its key."""


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0", "*:0"])
def test_a_gateway_without_tokens_listens_on_loopback_only(tmp_path: Path, bind: str) -> None:
    with pytest.raises(ConfigurationError, match="--insecure"):
        listen(GatewaySettings(bind, tmp_path))


def test_a_gateway_with_tokens_or_insecure_listens_anywhere(tmp_path: Path) -> None:
    for settings in (
        GatewaySettings("0.0.0.0:0", tmp_path, insecure=True),
        GatewaySettings("0.0.0.0:0", tmp_path, tokens=tmp_path),
    ):
        listening = listen(settings)
        assert listening.getsockname()[0] == "0.0.0.0"
        listening.close()


@pytest.mark.parametrize("bind", ["", "8080", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999"])
def test_an_invalid_address_is_refused(tmp_path: Path, bind: str) -> None:
    with pytest.raises(ConfigurationError):
        listen(GatewaySettings(bind, tmp_path, insecure=True))


def test_a_file_of_tokens_that_others_may_write_or_is_half_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"alice th_{digest('x')}")
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="half written"):
        read_users(path)
    path.write_text("")
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="chmod"):
        read_users(path)
    with pytest.raises(ConfigurationError):
        read_users(tmp_path / "nowhere")


def test_a_token_is_a_user_with_its_own_rights(cluster: Cluster, tmp_path: Path) -> None:
    alice, bob = new_token(), new_token()
    tokens = tmp_path / "tokens"
    tokens.write_text(f"alice th_{digest(alice)} put=own/* get=own/*\nbob th_{digest(bob)} get=* status\n")
    tokens.chmod(0o600)
    with Gateway(cluster, tmp_path / "data", "--tokens", str(tokens)) as gateway:
        nobody = gateway.ask("GET", "/topics")
        assert (nobody.status_code, nobody.headers["www-authenticate"]) == (401, "Bearer")
        assert gateway.ask("GET", "/livez").status_code == 200
        gateway.token = alice
        gateway.subscribe("own%2Fa", "s")
        gateway.put("own%2Fa", b"hers")
        assert gateway.ask("POST", "/topics/other/messages", b"x").status_code == 403
        assert gateway.ask("PUT", "/topics/other/subscribers/s").status_code == 403
        assert gateway.ask("PUT", "/topics/other/webhooks/s", {"url": "http://127.0.0.1:9/"}).status_code == 403
        assert gateway.ask("GET", "/topics").status_code == 403
        assert gateway.ask("GET", "/metrics").status_code == 403
        gateway.token = bob
        assert gateway.ask("GET", "/topics/own%2Fa/subscribers/s/messages").status_code == 404
        assert gateway.ask("POST", "/topics/own%2Fa/messages", b"x").status_code == 403
        assert gateway.ask("GET", "/topics").status_code == 200
        url = f"{gateway.url}/topics/own%2Fa/stream?subscriber=s&access_token={alice}"
        with CLIENT.stream("GET", url) as answer:
            assert answer.status_code == 200
            assert any("hers" in line for line in islice(answer.iter_lines(), 5))
        tokens.write_text(f"alice th_{digest(alice)}\n")
        until(lambda: gateway.ask("GET", "/topics").status_code == 401, "bob's token counts no more")


def test_a_gateway_with_a_certificate_speaks_https(cluster: Cluster, tmp_path: Path) -> None:
    flags = ("--tls-certificate", str(CERTIFICATE), "--tls-key", str(CERTIFICATE))
    with Gateway(cluster, tmp_path / "data", *flags) as gateway:
        trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
        answer = httpx2.get(f"https://127.0.0.1:{gateway.port}/livez", verify=trusted, trust_env=False)
        assert answer.json() == {"alive": True}


def test_a_gateway_ends_cleanly_while_polls_and_streams_wait(cluster: Cluster, tmp_path: Path) -> None:
    with Gateway(cluster, tmp_path / "data") as gateway:
        for name in ("p", "s"):
            gateway.subscribe("ending", name)
        gateway.put("ending", b"x")
        with gateway.events("ending", "s") as events:
            next(events)
            assert gateway.stop() == 0
            assert list(events) == []
        gateway.start()
        assert [one["body"] for one in gateway.take("ending", "s", 1)] == ["x"]


def test_a_second_gateway_in_a_directory_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with Gateway(cluster, tmp_path / "data"):
        second = Gateway(cluster, tmp_path / "data")
        second.process.name = "second"
        second.process.start()
        assert second.process.wait() == 9


def test_a_key_and_an_open_batch_outlive_a_gateway_that_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    with Gateway(cluster, tmp_path / "data") as gateway:
        gateway.subscribe("outlived", "s")
        put = gateway.put("outlived", b"x", idempotency_key="k")
        batch = gateway.poll("outlived", "s")
        gateway.kill()
        gateway.start()
        assert gateway.put("outlived", b"x", idempotency_key="k") == put
        assert gateway.poll("outlived", "s") == batch
        gateway.confirm(batch)
        gateway.kill()
        gateway.start()
        gateway.confirm(batch)
        assert gateway.poll("outlived", "s", wait=0)["messages"] == []


def test_two_gateways_serve_their_own_subscribers_side_by_side(cluster: Cluster, tmp_path: Path) -> None:
    with Gateway(cluster, tmp_path / "one") as first, Gateway(cluster, tmp_path / "two") as second:
        first.subscribe("shared", "a")
        second.subscribe("shared", "b")
        ids = {first.put("shared", b"1")["id"], second.put("shared", b"2")["id"]}
        assert {one["id"] for one in first.take("shared", "a", 2)} == ids
        assert {one["id"] for one in second.take("shared", "b", 2)} == ids


def test_a_subscriber_used_at_another_gateway_gets_a_conflict_at_the_first(cluster: Cluster, tmp_path: Path) -> None:
    path = "/topics/twice/subscribers/s/messages?wait=5"
    with Gateway(cluster, tmp_path / "one") as first, Gateway(cluster, tmp_path / "two") as second:
        first.subscribe("twice", "s")
        second.subscribe("twice", "s")
        second.put("twice", b"x")
        answer = until(lambda: (found := first.ask("GET", path)).status_code == 409 and found, "it is told")
        assert answer.json()["type"] == "urn:pubsub:problem:superseded"
        assert [one["body"] for one in second.take("twice", "s", 1)] == ["x"]


def test_an_unacknowledged_put_is_in_doubt_and_its_key_finishes_it(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.run(1, 1)
        with Gateway(cluster, tmp_path / "data", "--timeout-seconds", "1") as gateway:
            gateway.subscribe("doubt", "s")
            cluster.servers[0].kill()
            doubtful = gateway.ask("POST", "/topics/doubt/messages", b"x", idempotency_key="k")
            assert (doubtful.status_code, doubtful.json()["type"]) == (503, "urn:pubsub:problem:in-doubt")
            cluster.servers[0].start()
            until(
                lambda: gateway.ask("POST", "/topics/doubt/messages", b"x", idempotency_key="k").status_code == 201,
                "it is put",
            )
            assert len(gateway.take("doubt", "s", 1)) == 1


def test_a_put_in_doubt_is_sent_once_the_service_is_back(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.run(1, 1)
        with Gateway(cluster, tmp_path / "data", "--timeout-seconds", "1") as gateway:
            gateway.subscribe("left", "s")
            cluster.servers[0].kill()
            assert gateway.ask("POST", "/topics/left/messages", b"x").status_code == 503
            gateway.kill()
            cluster.servers[0].start()
            gateway.start()
            assert [one["body"] for one in gateway.take("left", "s", 1)] == ["x"]
