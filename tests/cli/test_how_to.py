"""The how-to pages of operators: their commands run as typed, against local clusters."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.shells import installed
from tests.ports import free_port

PAGES = Path(__file__).parents[2] / "docs/how-to"

pytestmark = pytest.mark.slow


def commands(page: str) -> list[str]:
    """What the sessions of a page type."""
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = [line.strip() for language, block in blocks if not language for line in block.splitlines()]
    return [line[2:] for line in lines if line.startswith("$ ")]


def with_gateway(lines: list[str]) -> list[str]:
    """The same lines, with the gateway that they start in the background until the end, at a free port."""
    port = free_port()
    lines = [line.replace(":8080", f":{port}") for line in lines]
    gateway = next(number for number, line in enumerate(lines) if line.startswith("pubsub gateway start"))
    lines[gateway] += " > gateway.log & trap 'kill %1' EXIT; until grep -q ready gateway.log; do sleep 0.1; done"
    return ["set -m", *lines]


def typed(place: Path, lines: list[str], cluster: str) -> str:
    """What these lines print, typed in a directory; the cluster that they start is stopped."""
    (place / "bin").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PUBSUB_")} | {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(place / "data"),
    }
    with installed(place / "bin/pubsub"):
        try:
            done = subprocess.run(
                ["bash", "-ec", "\n".join(lines)],
                cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                check=False,
            )  # fmt: skip
        finally:
            down = [place / "bin/pubsub", "down", "--dir", cluster]
            subprocess.run(down, cwd=place, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_cluster_is_looked_at_and_a_server_is_drained(tmp_path: Path) -> None:
    by_hand, (up, scrape) = commands("monitor.md")[:3], commands("monitor.md")[3:]
    assert up == "pubsub up --dir cluster --metrics 127.0.0.1:9400 --detach"
    drained = commands("upgrade.md")
    assert drained.pop(2) == "pubsub server switch s1", "this cluster has no standby"
    first = free_port()
    lines = [up, "export PUBSUB_PROXIES_FILE=cluster/proxies", scrape, *by_hand, *drained]
    found = typed(tmp_path, [line.replace(":9400", f":{first}") for line in lines], "cluster")
    assert 'pubsub_process_info{id="p1"' in found
    assert "s1 takes topics again" in found


def test_a_client_gets_a_key_then_another_key_then_none(tmp_path: Path) -> None:
    lines = []
    for line in commands("secure.md"):
        text = re.sub(r"pk_RkB\w+|pk_OLD", "$(awk '{ print $3 }' made)", line)
        text = text.replace("pk_NEW", "$(awk '{ print $3 }' next)")
        if line.startswith("pubsub keys new"):
            text += " > made"
        if line.startswith("pubsub keys rotate") and "--finish" not in line:
            text += " > next"
        lines.append(text)
    puts = "echo tea | pubsub client alice put orders/tea - --key alice.key"
    lines.insert(next(number for number, line in enumerate(lines) if "keys rotate" in line), puts)
    lines.insert(next(number for number, line in enumerate(lines) if "revoke alice" in line), puts)
    lines.append(f"! {puts}")
    assert "loaded by 2 of 2 proxies" in typed(tmp_path, lines, "cluster")


def test_a_server_is_copied_and_put_back(tmp_path: Path) -> None:
    lines = ["pubsub up --dir . --proxies 1 --servers 1 --detach", "export PUBSUB_PROXIES_FILE=proxies"]
    lines += ["pubsub client alice subscribe orders", "echo tea | pubsub client bob put orders -"]
    found = typed(tmp_path, [*lines, *commands("back-up.md")], ".")
    assert "topic orders is intact: 1 records" in found
    assert "exported 1 messages to files" in found
    assert "server s1 continues with 1 topics in new logs; start it now" in found


def test_a_topic_keeps_messages_and_shows_them(tmp_path: Path) -> None:
    lines = with_gateway(commands("keep-messages.md"))
    text = (PAGES / "keep-messages.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "ops.py").write_text(program)
    found = typed(tmp_path, [*lines, f"{sys.executable} ops.py"], "cluster")
    assert found.count("orders: keep=ever drop=never (version ") == 2
    assert "orders: keep=7d drop=30d (version " in found
    assert '"body":"tea\\n"' in found
    assert "\n7d never False\ntopic orders has other settings meanwhile" in found


def test_the_latest_message_of_each_key_is_read_as_a_table(tmp_path: Path) -> None:
    page = "keep-the-latest.md"
    (program,) = re.findall(r"^```python\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "shop.py").write_text(program)
    found = typed(tmp_path, [*with_gateway(commands(page)), f"{sys.executable} shop.py"], "cluster")
    assert "EUR\t1.09\n" in found
    found = re.sub(r'"stamp":\d+,', "", found)
    assert '"values":[{"key":"EUR","body":"1.09\\n"},{"key":"JPY","body":"0.0064\\n"}],"next":null' in found
    assert '"keys":2,"values":[{"key":"EUR","body":"1.09\\n"}],"next":null' in found
    assert found.endswith("b'1.09\\n'\nb'unknown'\nb'1.36'\nb'EUR' b'1.09\\n'\nb'JPY' b'0.0064\\n'\nb'CNY' b'7.85'\n")


def test_messages_are_delayed(tmp_path: Path) -> None:
    lines = [line for line in commands("delay-messages.md") if not line.startswith("pubsub down")]
    (program,) = re.findall(
        r"^```python\n(.*?)^```$", (PAGES / "delay-messages.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "later.py").write_text(program)
    lines += [f"{sys.executable} later.py", "pubsub status --json", "pubsub status"]
    found = typed(tmp_path, lines, "cluster")
    assert "tea" in found
    assert '"delayed": 5' in found
    assert "Topics with delayed messages" in found


def test_publishers_are_limited(tmp_path: Path) -> None:
    lines = [line for line in commands("limit-publishers.md") if not line.startswith("pubsub down")]
    lines += ["pubsub topic show orders", "pubsub status --json"]
    found = typed(tmp_path, lines, "cluster")
    assert "orders: keep=none drop=never rate=5/s bytes=1MiB/s (version " in found
    assert "Topics with throttled puts" in found
    assert re.search(r'"throttled": [1-9]', found), "the put after the fifty lines waited"
    assert "orders: keep=none drop=never (version " in found


def test_topics_are_created_refused_purged_and_deleted(tmp_path: Path) -> None:
    text = (PAGES / "manage-topics.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "ops.py").write_text(program)
    lines = [
        f"{line} 2>&1 || test $? = 22" if line.endswith("put ordres -") else line
        for line in commands("manage-topics.md")
    ]
    get = "pubsub client billing get orders 2>&1 || test $? = 11"
    deletion = next(n for n, line in enumerate(lines) if line.startswith("pubsub topic delete"))
    lines[deletion:deletion] = [get, "pubsub topic delete orders --yes 2>&1 || test $? = 15"]
    lines += ["pubsub topic create orders", get, f"{sys.executable} ops.py"]
    found = typed(tmp_path, ["export PUBSUB_TOPICS_AUTO=false", *lines], "cluster")
    assert "orders: created, keep=7d drop=never" in found
    assert "orders: exists already with these settings" in found
    (refused,) = re.findall(r"^pubsub: error: topic 'ordres'.*$", text, re.MULTILINE)
    assert refused in found
    assert "orders: 1 message deleted, 0 unread" in found
    assert "orders: 1 message deleted, 1 unread" in found
    losses = re.findall(r"^pubsub: error: orders: .*$", text, re.MULTILINE)
    told = re.findall(r"^pubsub: error: orders: .*$", found, re.MULTILINE)
    assert len(losses) == 2
    assert [re.sub(r"\w{16}\.\d+", "PLACE", one) for one in told] == [
        re.sub(r"\w{16}\.\d+", "PLACE", one) for one in losses
    ]
    assert "topic orders has 1 subscriber, so it is not deleted" in found
    assert "orders: deleted, with 0 messages and 1 subscriber" in found
    assert (
        "\ntopic invoices exists with keep=30d drop=never; pubsub topic set invoices changes them\n0 0\n[0]\n0\n"
        in found
    )


def test_an_absent_subscriber_gets_one_report_of_dropped_batches(tmp_path: Path) -> None:
    quick = {"RETENTION_HOLD_SECONDS": 4, "SKEW_SECONDS": 0.1}
    lines = [
        *(f"export PUBSUB_SERVER_{name}={value}" for name, value in quick.items()),
        *commands("keep-messages.md")[:2],
        "pubsub client billing subscribe orders",
        "pubsub topic set orders drop=1s --yes",
        "for body in tea milk; do echo $body | pubsub client shop put orders -; done",
        'until pubsub status --json | grep -q \'"bytes": 0,.*"waiting": 2\'; do sleep 0.5; done',
        "pubsub client billing get orders 2>&1 || test $? = 11",
    ]
    shown = re.findall(r"^pubsub: error: .*$", (PAGES / "keep-messages.md").read_text(), re.MULTILINE)
    losses = re.findall(r"^pubsub: error: .*$", typed(tmp_path, lines, "cluster"), re.MULTILINE)
    assert [re.sub(r"\w{16}\.\d+", "PLACE", line) for line in losses] == [
        re.sub(r"\w{16}\.\d+", "PLACE", line) for line in shown
    ]
    assert re.findall(r"\.(\d+)", losses[0]) == ["1", "2"]


def test_a_family_of_topics_is_subscribed_to_before_its_topics_begin(tmp_path: Path) -> None:
    page = "subscribe-to-a-family.md"
    (program,) = re.findall(r"^```python\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "family.py").write_text(program)
    lines = with_gateway(commands(page))
    assert lines[-1].startswith("pubsub topic unsubscribe 'orders.>'")
    found = typed(tmp_path, [*lines, f"{sys.executable} family.py"], "cluster")
    taken = re.findall(r'"topic": ?"(orders[a-z.]+)".*?"body": ?"(\w+)', found, re.DOTALL)
    # The gateway's subscriber is a moment younger than these two, which may come to it as well (FA4), before the third.
    assert {("orders.eu", "tea"), ("orders.us.east", "milk")} <= set(taken)
    assert len(taken) == 3
    assert "billing is not subscribed to orders.eu any more" in found
    assert "orders.asia b'rice'" in found


def test_the_symptoms_of_the_page_are_printed_by_the_commands(tmp_path: Path) -> None:
    symptoms = re.findall(r"^\| (.*?) \| .* \| .* \|$", (PAGES / "troubleshoot.md").read_text(), re.MULTILINE)
    away = f"--proxy tcp://127.0.0.1:{free_port()} --timeout-seconds 1"
    lines = [
        "exec 2>&1",
        f"echo tea | pubsub client bob put orders - {away} || true",
        f"pubsub client zed get orders {away} || true",
        f"pubsub client bob get orders {away} || true",
    ]
    found = typed(tmp_path, lines, "none")
    for symptom in ("`Connection refused`", "`no success within … s`", "`there is no client …` (exit code 20)",
                    "`is not subscribed to …` (6)"):  # fmt: skip
        assert symptom in symptoms
        words = re.findall(r"`([^`]+)`", symptom)[0]
        assert all(word in found for word in words.split(" … ")[0].split("…")), symptom


def test_a_topic_is_looked_back_into(tmp_path: Path) -> None:
    lines, port = commands("look-back.md"), free_port()
    text = (PAGES / "look-back.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "ledger.py").write_text(program)
    gateway = next(number for number, line in enumerate(lines) if line.startswith("pubsub gateway start"))
    lines[gateway] += " > gateway.log & trap 'kill %1' EXIT; until grep -q ready gateway.log; do sleep 0.1; done"
    lines = ["set -m", *(line.replace(":8080", f":{port}") for line in lines), f"{sys.executable} ledger.py"]
    found = typed(tmp_path, lines, "cluster")
    assert found.count("tea\nmilk\nbread\n") == 2, "billing gets them, and topic read prints them"
    assert re.search(r"billing receives orders from \S+Z on \(replay 1\)", found)
    assert found.count('"replay": 1, ') == 3
    assert "orders: 3 records, " in found
    assert '"start":"earliest","replay":1}' in found
    assert '"body":"bread"' in found
    printed = ["b'tea' 0", "1", "b'tea' 1", "b'milk' 1", "b'bread' 1", "3 True", "b'tea'", "b'milk'", "b'bread'"]
    assert "\n".join(printed) in found


def test_messages_are_put_off_rejected_and_redriven(tmp_path: Path) -> None:
    text = (PAGES / "retry-later.md").read_text()
    first, second = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "billing.py").write_text(first)
    (tmp_path / "letters.py").write_text(second)
    lines = [line.replace("python ", f"{sys.executable} ") for line in commands("retry-later.md")]
    again = ["echo bad | pubsub client shop put orders -", f"{sys.executable} billing.py"]
    found = typed(tmp_path, [*lines, *again, f"{sys.executable} letters.py"], "cluster")
    assert found.count("paid tea in attempt 2\n") == 1
    assert found.count("redriven 1 dead letter of billing\n") == 2
    assert '"body":"bad coffee\\n"' in found.replace(" :", ":").replace(": ", ":")
    assert "$dead.billing: keep=14d drop=never" in found
    assert "purged 0 dead letters of billing\n" in found
    assert "b'bad coffee\\n' no such customer 1\n" in found
    assert "b'bad\\n' no such customer 1\n2 redriven\n0 purged\n" in found
    assert "\nfailed: the bank is down\npaid coffee in attempt 3\n" in found


def test_workers_share_a_topic(tmp_path: Path) -> None:
    lines = [line for line in commands("share-work.md") if not line.startswith(("pubsub down", "pubsub keys"))]
    (program, _) = re.findall(
        r"^```python\n(.*?)^```$", (PAGES / "share-work.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "worker.py").write_text(program)
    lines = [line.replace("python worker.py w", f"{sys.executable} worker.py w") for line in lines]
    lines = [re.sub(r"^(\S+ worker.py \w+) & ", r"\1 > worker.log 2>&1 & ", line) for line in lines]
    lines.insert(0, "trap 'kill $(jobs -p) || true' EXIT")
    found = typed(tmp_path, lines, "cluster")
    assert "redriven 1 dead letter of billing of orders" in found
    assert "dropped " in found
    assert "1 tea\n" in found
    assert "1 milk\n" in found
    assert "handled 2 messages of orders" in found
    assert "billing of orders: shared, on_lost=wait, lost_seconds=600, 5 attempts" in found
