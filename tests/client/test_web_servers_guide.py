"""The programs of docs/how-to/web-servers.md run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pubsub import embedded
from pubsub.client import Client

GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "web-servers.md").read_text()
NAMES, APPLICATION = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def run(source: str) -> dict[str, Any]:
    shown: dict[str, Any] = {"__name__": "shown"}
    exec(compile(source, "docs/how-to/web-servers.md", "exec"), shown)
    return shown


def test_each_worker_takes_the_first_free_id_and_a_later_one_reuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_CLIENT_PROXIES", "ipc:///nowhere")
    monkeypatch.setenv("PUBSUB_CLIENT_DIRECTORY", str(tmp_path))
    open_client = run(NAMES)["open_client"]
    with open_client("shop", kind=Client) as first, open_client("shop", kind=Client) as second:
        assert (first.path.stem, second.path.stem) == ("shop-1", "shop-2")
    with open_client("shop", kind=Client) as again:
        assert again.path.stem == "shop-1"


def test_the_web_application_puts_the_received_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workers.py").write_text(NAMES)
    monkeypatch.syspath_prepend(tmp_path)
    with embedded(bind="tcp://127.0.0.1:0") as cluster:
        monkeypatch.setenv("PUBSUB_CLIENT_PROXIES", ",".join(cluster.proxies))
        monkeypatch.setenv("PUBSUB_CLIENT_PROXY_KEYS", " ".join(cluster.proxy_keys))
        monkeypatch.setenv("PUBSUB_CLIENT_KEY_FILE", str(cluster.key_file("shop-1", "put=orders")))
        monkeypatch.setenv("PUBSUB_CLIENT_DIRECTORY", str(tmp_path))
        ledger: Client = cluster.client("ledger")
        ledger.subscribe("orders")
        with TestClient(run(APPLICATION)["app"]) as browser:
            answer = browser.post("/orders", content=b"tea")
        assert answer.status_code == 201
        message = ledger.get("orders", timeout=60)
        assert message is not None
        assert (message.body, {"order": message.counter}) == (b"tea", answer.json())
