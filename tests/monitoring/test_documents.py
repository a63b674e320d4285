"""docs/monitoring.md, the alert rules and the dashboard name the metrics of real processes, and all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.test_cluster import up
from tests.faults.cluster import Process, until
from tests.ports import free_port

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "monitoring.md").read_text()
ALERTS = yaml.safe_load((DOCS / "monitoring/alerts.yml").read_text())
DASHBOARD = json.loads((DOCS / "monitoring/grafana.json").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
NAME = re.compile(r"\b(?:pubsub|process)_[a-z_]+\b")
GIVEN = {"job", "instance"}
"""Labels that Prometheus itself gives to what it scrapes."""

Told = dict[str, set[str]]
"""What a process tells: names of metrics, counters with `_total`, each with its labels."""


def told(text: str) -> Told:
    found: Told = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
        if family.type == "histogram":
            found |= {f"{name}_{part}": found[name] | ({"le"} if part == "bucket" else set()) for part in PARTS}
    return found


PARTS = ("bucket", "sum", "count")


def whole(names: set[str]) -> set[str]:
    """Histograms by their own name."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Told]]:
    """What a proxy, a primary, its standby and a gateway tell, when a message waits for a subscriber."""
    place = tmp_path_factory.mktemp("monitored")
    with up(place / "c", "--standby", "--servers", "1", "--metrics", "127.0.0.1:0") as running:
        urls = {one["id"]: one["metrics"] for one in running.facts["processes"]}
        at = f"127.0.0.1:{free_port()}"
        command = ["-m", "pubsub", "gateway", "start", "--bind", at, "--dir", str(place / "gateway")]
        gateway = Process("gateway", place, [*command, "--proxies-file", str(place / "c/proxies")]).start()
        try:
            gateway.wait_line("gateway ready")
            with httpx2.Client(base_url=f"http://{at}", timeout=60.0) as client:
                client.put("/topics/orders/subscribers/shop").raise_for_status()
                client.put("/topics/orders/groups/billing/members/m1").raise_for_status()
                client.put("/topics/orders/settings", json={"keep": "7d"}).raise_for_status()
                client.post("/topics/orders/messages", content=b"x").raise_for_status()
                client.post("/topics/orders/messages?delay=3600", content=b"later").raise_for_status()
                kept, delayed = (f'pubsub_topic_{name}{{topic="orders"}}' for name in ("kept_bytes", "delayed"))
                until(lambda: kept in (text := client.get("/metrics").text) and delayed in text, "the topic is told")
                members = {name: httpx2.get(urls[name], timeout=60.0).text for name in ("s1", "s1b")}
                (primary,) = (text for text in members.values() if "pubsub_server_serving 1.0" in text)
                (standby,) = (text for text in members.values() if "pubsub_server_serving 0.0" in text)
                texts = {"proxy": httpx2.get(urls["p1"], timeout=60.0).text, "server": primary, "standby": standby,
                         "gateway": client.get("/metrics").text}  # fmt: skip
                yield {role: told(text) for role, text in texts.items()}
        finally:
            gateway.end()
        assert running.stop()[0] == 0


def section(title: str, end: str = "\n## ") -> str:
    found = PAGE.partition(f"# {title}\n")[2].partition(end)[0]
    assert found, title
    return found


def rows(text: str) -> dict[str, set[str]]:
    """What the first column of a section's tables names, with its labels."""
    found = re.findall(r"^\| `([a-z_]+)(?:\{([a-z,]+)\})?` \|", text, re.MULTILINE)
    return {name: set(labels.split(",")) - {""} for name, labels in found}


def test_the_page_has_exactly_the_metrics_of_each_process(pages: dict[str, Told]) -> None:
    every = rows(section("Metrics of every process"))
    for role in ("server", "proxy", "gateway"):
        documented = every | rows(section(f"Metrics of a {role}"))
        names = whole(set(pages[role]))
        assert documented.keys() == names, role
        assert documented == {name: pages[role][name] for name in names}, role


def test_the_page_has_the_metrics_of_a_standby(pages: dict[str, Told]) -> None:
    names = {name for name in pages["standby"] if name.startswith("pubsub_server_")}
    assert set(NAME.findall(section("Of a standby"))) == {name for name in names if not name.endswith("_total")}
    assert {name for name in pages["server"] if name.endswith("_total")} <= names | set(pages["gateway"])


def test_two_kinds_of_processes_share_only_the_common_metrics(pages: dict[str, Told]) -> None:
    every = rows(section("Metrics of every process")).keys()
    for one, other in (("server", "proxy"), ("server", "gateway"), ("proxy", "gateway")):
        assert pages[one].keys() & pages[other].keys() == every


def expressions() -> list[tuple[str, str]]:
    """Each expression of the rules and the dashboard, and where it stands."""
    rules = [(f"alert {rule['alert']}", rule["expr"]) for rule in RULES]
    panels = [(f"panel {panel['title']}", target["expr"])
              for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]  # fmt: skip
    variables = [(f"variable {one['name']}", one["query"]["query"])
                 for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]  # fmt: skip
    return rules + panels + variables


def test_every_metric_in_the_rules_and_the_dashboard_exists_with_its_labels(
    pages: dict[str, Told],
) -> None:
    known: Told = {}
    for page in pages.values():
        for name, labels in page.items():
            known[name] = known.get(name, set()) | labels
    found = expressions()
    assert len(found) > 70
    lost = []
    for where, text in found:
        names = NAME.findall(text)
        lost += [f"{where}: {name}" for name in names if name not in known]
        if not names and not re.search(r"\bup\{", text):
            lost.append(f"{where}: asks for nothing")
        for name, matchers in re.findall(r"\b([a-z_]+)\{([^}]*(?:\{[^}]*\}[^}]*)*)\}", text):
            asked = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)\s*\"", matchers))
            lost += [f"{where}: {name}{{{label}}}" for label in sorted(asked - GIVEN - known.get(name, set()))]
        labels = set().union(*(known.get(name, set()) for name in names)) | GIVEN
        for grouped in re.findall(r"\b(?:by|on|group_left) \(([a-z, ]*)\)", text):
            lost += [f"{where}: {label}" for label in grouped.split(", ") if label not in labels]
    assert lost == []


def test_each_alarm_is_on_the_page_with_its_severity() -> None:
    named = dict(re.findall(r"^\| `(Pubsub\w+)` \| (page|ticket) \|", section("Alarms"), re.MULTILINE))
    assert named == {rule["alert"]: rule["labels"]["severity"] for rule in RULES}
    assert all(rule["annotations"]["summary"] for rule in RULES)


def test_the_text_of_an_alarm_uses_only_remaining_labels() -> None:
    for rule in RULES:
        said = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        for grouped in re.findall(r"^(?:sum|max) by \(([a-z, ]*)\)", rule["expr"]):
            assert said <= set(grouped.split(", ")), rule["alert"]


def test_the_dashboard_can_be_drawn() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not taken & cells, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"


def test_prometheus_scrapes_under_the_job_names_of_the_rules() -> None:
    settings = yaml.safe_load((DOCS / "monitoring/prometheus.yml").read_text())
    assert settings["rule_files"] == ["alerts.yml"]
    assert {job["job_name"] for job in settings["scrape_configs"]} == {"pubsub", "pubsub-gateway"}
