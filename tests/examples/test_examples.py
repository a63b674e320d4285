"""The programs of examples/ keep the promises of their first lines under kills, restarts and in other languages.

Those that need Spark are in tests/spark/test_examples.py.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from pubsub import Client
from tests.examples.programs import EXAMPLES, Programs
from tests.faults.cluster import Cluster, until
from tests.gateway.browser import REQUIRED
from tests.gateway.serving import Gateway
from tests.ports import free_port

pytestmark = pytest.mark.slow
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


def needs(program: str) -> pytest.MarkDecorator:
    missing = shutil.which(program) is None and not REQUIRED
    return pytest.mark.skipif(missing, reason=f"no {program} is here: it was not tried")


def asked(url: str) -> int:
    """The status that a server answers; 0 while it does not listen."""
    try:
        return httpx2.get(url, trust_env=False).status_code
    except httpx2.TransportError:
        return 0


def waiting(cluster: Cluster, topic: str, subscriber: str) -> int | None:
    """How many messages a subscriber has not acknowledged; None before it is subscribed."""
    held = cluster.report("s1")["topics"].get(topic, {}).get("subscribers", {}).get(subscriber)
    return None if held is None else int(held["waiting"])


def rows(programs: Programs, client: str, statement: str) -> list[tuple[object, ...]]:
    """Rows of the state of a client that is closed."""
    opened = Client(client, proxies=["ipc:///nowhere"], directory=programs.place / "clients")
    with opened, opened.transaction() as transaction:
        return list(transaction.execute(statement))


def test_the_example_programs_have_a_readable_length() -> None:
    found = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.iterdir() if path.is_file()}
    found.pop("README.md")
    assert len(found) == 9
    assert {name: lines for name, lines in found.items() if not 30 <= lines <= 90} == {}


def test_each_program_is_in_the_list() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    programs = [path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.*") if path.is_file()]
    assert [name for name in programs if f"({name})" not in listed and "__pycache__" not in name] == ["README.md"]


def test_a_repeated_order_is_put_once_and_is_paid_by_a_message(cluster: Cluster, programs: Programs) -> None:
    ledger = cluster.client("ledger-of-orders")
    ledger.subscribe("orders")
    port = free_port()
    url = f"http://127.0.0.1:{port}/orders/17"
    served = programs.start(sys.executable, "-m", "uvicorn", "orders:app", "--http", "h11", "--port", str(port))
    until(lambda: asked(url) == 404 or served.poll() is not None, "the service is ready")
    for _ in range(2):
        answer = httpx2.put(url, json={"item": "tea"}, trust_env=False, timeout=120)
        assert (answer.status_code, answer.json()) == (202, {"number": "17"}), programs.log()
    assert [(one.key, one.body) for one in ledger.get_many("orders", timeout=120)] == [(b"17", b"tea")]
    assert ledger.get("orders", timeout=0) is None
    assert httpx2.get(url, trust_env=False).json() == {"number": "17", "item": "tea", "state": "new"}
    until(lambda: waiting(cluster, "payments", "orders") == 0, "the service has subscribed")
    cluster.client("bank").put("payments", b"", key=b"17")
    until(lambda: httpx2.get(url, trust_env=False).json()["state"] == "paid", "it is paid")
    assert programs.stop(served) in {0, -15}


@contextmanager
def mail_server(refused: set[bytes]) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server that takes requests, but for some bodies; its URL and what it took."""
    taken: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if body not in refused:
                taken.append((self.headers["idempotency-key"], body))
            self.send_response(503 if body in refused else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", taken
        server.shutdown()


def test_a_worker_retries_and_continues_behind_a_dead_letter_that_is_redriven(
    cluster: Cluster, programs: Programs
) -> None:
    refused = {b"bad"}
    with mail_server(refused) as (url, taken):
        worker = programs.python("retries.py", url, PUBSUB_CLIENT_RETRY_FIRST_SECONDS="0.05")
        until(lambda: waiting(cluster, "mail", "mailer") == 0, "the worker has subscribed")
        cluster.client("writer").put_many("mail", [b"one", b"bad", b"two"])
        until(lambda: [body for _, body in taken] == [b"one", b"two"], "the worker goes on")
        assert programs.stop(worker) == 0
        assert programs.log().count("attempt failed: ") == 4
        assert "dead letters after 5 attempts" in programs.log()
        refused.clear()
        said = programs.run(sys.executable, str(EXAMPLES / "retries.py"), "--again")
        assert said == "again: bad which failed with HTTPError: HTTP Error 503: Service Unavailable\n"
        assert programs.run(sys.executable, str(EXAMPLES / "retries.py"), "--again") == ""
        worker = programs.python("retries.py", url, PUBSUB_CLIENT_RETRY_FIRST_SECONDS="0.05")
        until(lambda: [body for _, body in taken] == [b"one", b"two", b"bad"], "the letter is sent")
        assert programs.stop(worker) == 0
    assert sorted(rows(programs, "mailer", "select id from sent")) == sorted((key,) for key, _ in taken)


def test_an_order_is_charged_once_though_worker_and_caller_are_killed(cluster: Cluster, programs: Programs) -> None:
    pay = [sys.executable, str(EXAMPLES / "charge_once.py")]
    worker = programs.python("charge_once.py", "worker")
    until(lambda: "serving" in programs.log(), "the worker serves")
    assert programs.run(*pay, "order-17", "20") == "order-17: charged 20, receipt 1\n"
    until(lambda: waiting(cluster, "$calls.charge", "billing") == 0, "the first call is acknowledged")
    worker.kill()
    worker.wait()
    caller = programs.python("charge_once.py", "order-18", "5")
    until(lambda: waiting(cluster, "$calls.charge", "billing") == 1, "the call is stored")
    caller.kill()
    caller.wait()
    worker = programs.python("charge_once.py", "worker")
    assert programs.run(*pay, "order-18", "5") == "order-18: charged 5, receipt 2\n"
    assert programs.run(*pay, "order-17", "20") == "order-17: charged 20, receipt 1\n"
    worker.kill()
    worker.wait()
    assert rows(programs, "billing", "select call, amount from charges") == [("order-17", 20), ("order-18", 5)]


def test_a_receiver_of_webhooks_has_each_message_once_and_refuses_a_forged_one(
    gateway: Gateway, programs: Programs
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    receiver = programs.python("webhook_receiver.py", str(port), "received.db", SECRET=SECRET)
    until(lambda: asked(url) == 501, "it listens")
    hook = {"url": url, "secrets": [SECRET]}
    assert gateway.ask("PUT", "/topics/hooked/webhooks/billing", hook).status_code == 201
    sent = gateway.put("hooked", b'{"order": 17}')
    store = sqlite3.connect(programs.place / "received.db")
    until(lambda: store.execute("select count(*) from orders").fetchone() == (1,), "it has come")
    assert store.execute("select body from orders").fetchall() == [(b'{"order": 17}',)]
    assert store.execute("select id from seen").fetchall() == [(sent["id"],)]
    assert httpx2.post(url, content=b"forged", trust_env=False).status_code == 401
    assert programs.stop(receiver) == 0
    assert gateway.ask("DELETE", "/topics/hooked/webhooks/billing").status_code == 204


@needs("node")
def test_the_consumer_in_node_writes_each_message_once_despite_kills(gateway: Gateway, programs: Programs) -> None:
    file = programs.place / "received.ndjson"
    command = ["node", str(EXAMPLES / "consumer.mjs"), gateway.url, "noded", "ledger", str(file)]

    def written() -> list[str]:
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [one["body"] for line in lines if line.endswith("\n") for one in json.loads(line)["messages"]]

    gateway.subscribe("noded", "ledger")
    gateway.put("noded", b"one")
    consumer = programs.start(*command)
    until(lambda: written() == ["one"], "it has written the first")
    consumer.kill()
    consumer.wait()
    with file.open("a") as torn:
        torn.write('{"confirm": "/to')  # As a crash in the midst of a write leaves it.
    gateway.put("noded", b"two")
    consumer = programs.start(*command)
    until(lambda: written() == ["one", "two"], f"it has written the second: {programs.log()}")
    assert programs.stop(consumer) == 0
    assert gateway.poll("noded", "ledger", wait=0)["messages"] == []


@needs("java")
def test_the_producer_in_java_puts_each_line_once_in_two_runs(gateway: Gateway, programs: Programs) -> None:
    gateway.subscribe("javaed", "ledger")
    program = str(EXAMPLES / "Producer.java")
    command = ["java", "-XX:TieredStopAtLevel=1", program, gateway.url, "javaed", "run-17"]
    assert programs.run(*command, text="1\n2\n") == "1 put\n2 put\n"
    assert programs.run(*command, text="1\n2\n3\n") == "1 was put before\n2 was put before\n3 put\n"
    assert [one["body"] for one in gateway.take("javaed", "ledger", 3)] == ["1", "2", "3"]
