"""A gateway of a cluster with keys: each user acts by a key of its own, and the cluster has the last word."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.cli import main
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_public
from pubsub.security.pairs import new_pair
from pubsub.web.tokens import digest, new_token
from tests.faults.cluster import Cluster, until
from tests.gateway.serving import Gateway

pytestmark = pytest.mark.slow

GROUP_ACTIONS = [
    ("PATCH", "", {"attempts": 3}),
    ("POST", "/release", {"member": "alice.g.w"}),
    ("POST", "/redrive", {}),
    ("POST", "/drop", {}),
    ("POST", "/resume", {"skip": False}),
    ("DELETE", "", None),
]


def test_a_user_acts_by_its_own_key_and_gets_denials_of_the_cluster(tmp_path: Path) -> None:
    with Cluster(tmp_path, keys=True) as cluster:
        cluster.run(1, 1)
        assert cluster.keys is not None
        data, token = tmp_path / "data", new_token()
        tokens = tmp_path / "tokens"
        tokens.write_text(f"alice th_{digest(token)} put=* get=* status\n")
        tokens.chmod(0o600)
        (data / "keys").mkdir(parents=True)
        public = new_key(data / "keys/alice.key")
        authorized = str(cluster.keys.authorized)
        rights = ["--put", "own/*", "--get", "own/*", "--names", "g", "--authorized", authorized]
        assert main(["keys", "authorize", "client", "alice.*", public, *rights]) == 0
        with Gateway(cluster, data, "--tokens", str(tokens), token=token) as gateway:
            until(lambda: gateway.ask("PUT", "/topics/own%2Fa/subscribers/s").status_code in {200, 201}, "let in")
            put = gateway.put("own%2Fa", b"hers")
            seen = gateway.ask("GET", "/topics/own%2Fa/messages")
            assert [one["body"] for one in seen.json()["messages"]] == ["hers"]
            (message,) = gateway.take("own%2Fa", "s", 1)
            assert message["id"] == put["id"]
            assert message["publisher"].startswith("alice.http/")
            denied = gateway.ask("POST", "/topics/other/messages", b"x")
            assert (denied.status_code, "may not put to other" in denied.json()["detail"]) == (403, True)
            assert gateway.ask("PUT", "/topics/other/subscribers/s").status_code == 403
            assert gateway.ask("GET", "/topics/other/messages").status_code == 403
            assert gateway.ask("GET", "/topics/own%2Fa/settings").status_code == 200
            denied = gateway.ask("GET", "/topics/other/settings")
            assert denied.status_code == 403
            assert "may not look at the settings of other (by the cluster's access list)." in denied.json()["detail"]
            assert gateway.ask("GET", "/topics").status_code == 200  # By the gateway's own key, which --key names.
            gateway.put("own%2Fa", b"and the next one goes")
            member = "groups/g/members/w?start=earliest"
            made = gateway.ask("PUT", f"/topics/own%2Fa/{member}")
            assert made.status_code == 201, made.text
            batch = gateway.ask("GET", "/topics/own%2Fa/groups/g/members/w/messages?wait=10")
            assert batch.json()["messages"][-1]["body"] == "and the next one goes"
            assert gateway.ask("DELETE", batch.json()["confirm"]).status_code == 204
            denied = gateway.ask("PUT", f"/topics/other/{member}")
            assert (denied.status_code, "by the cluster's access list" in denied.json()["detail"]) == (403, True)
            for method, path, body in GROUP_ACTIONS:
                denied = gateway.ask(method, f"/topics/own%2Fa/groups/g{path}", body)
                assert (denied.status_code, "lacks the right operate" in denied.json()["detail"]) == (403, True), path


def new_key(path: Path) -> str:
    """Makes a key file; its public half."""
    pair = new_pair()
    make_key_file(path, pair.secret)
    return format_public(pair.public)
