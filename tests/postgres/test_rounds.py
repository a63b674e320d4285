"""Faults on clients, relays and their database: tables and messages agree to the row; and the audit sees mistakes."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.postgres.fixtures import leave_out
from tests.postgres.programs import missing
from tests.postgres.rounds.audit import Facts, doubled, objections

AUDIT = Path(__file__).with_name("rounds") / "audit.py"


@pytest.mark.faults
@pytest.mark.parametrize("seed", [1, *[pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 6)]])
def test_tables_and_messages_agree_to_the_row(seed: int, tmp_path: Path) -> None:
    if reason := missing():
        leave_out(reason)
    from tests.postgres.rounds.running import run

    assert run(5 if seed == 1 else 30, seed, tmp_path) == []


@pytest.mark.faults
@pytest.mark.parametrize("number", [1, *[pytest.param(number, marks=pytest.mark.nightly) for number in range(2, 9)]])
def test_a_replica_that_takes_over_behind_is_noticed_and_nothing_is_there_twice(number: int, tmp_path: Path) -> None:
    if reason := missing():
        leave_out(reason)
    from tests.postgres.rounds import promoted

    assert promoted.run(number, 1, tmp_path) == []


RIGHT = Facts(
    ledger={"orders": ["1 1 0", "1 2 0"], "mails": ["1 1 1", "2 1 0"], "bills": ["2 2 0", "2 3 0"]},
    effects={"single": ["1 1 0", "1 2 0"], "many": ["1 1 1", "2 1 0"], "member": ["2 3 0", "2 2 0"]},
    intents=["1", "4"],
    received={
        "orders": ["1 1 0", "1 2 0"], "mails": ["1 1 1", "2 1 0"], "bills": ["2 2 0", "2 3 0"],
        "receipts": ["single 1 1 0", "many 1 1 1", "member 2 3 0", "single 1 2 0", "many 2 1 0", "member 2 2 0"],
        "direct": ["1", "4"], "plain": ["2", "8"],
    },
    begun=["2", "5", "8"],
    returned=["2", "8"],
    left={"outbox": 0},
)  # fmt: skip


def _with(field: str, name: str, texts: list[str]) -> Facts:
    return replace(RIGHT, **{field: {**getattr(RIGHT, field), name: texts}})


def test_what_is_right_has_no_objection() -> None:
    assert objections(RIGHT) == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (_with("effects", "single", ["1 1 0"]), "effects of single: 1 2 0 is missing"),
        (_with("effects", "single", ["1 1 0", "1 2 0", "1 2 0"]), "effects of single: 1 2 0 is there 2 times"),
        (_with("effects", "member", ["2 3 0", "2 2 0", "2 2 0"]), "effects of member: 2 2 0 is there 2 times"),
        (_with("effects", "many", ["2 1 0", "1 1 1"]), "effects of many: 2 1 0 stands where 1 1 1 should"),
        (_with("effects", "many", ["1 1 1", "2 1 0", "3 1 0"]), "effects of many: 3 1 0 was never committed"),
        (_with("received", "orders", ["1 1 0"]), "messages of orders: 1 2 0 is missing"),
        (_with("received", "bills", ["2 2 0", "2 3 0", "2 3 0"]), "messages of bills: 2 3 0 is there 2 times"),
        (_with("received", "receipts", []), "receipts: many 1 1 1 is missing"),
        (_with("received", "receipts", [*RIGHT.received["receipts"], "single 9 9 9"]),
         "receipts: single 9 9 9 was never committed"),
        (_with("received", "receipts", RIGHT.received["receipts"][::-1]), "receipts of single: single 1 2 0 stands"),
        (_with("received", "direct", ["4", "1"]), "direct: 4 stands where 1 should"),
        (_with("received", "direct", ["1"]), "direct: 4 is missing"),
        (_with("received", "plain", ["2", "2", "8"]), "plain: 2 is there 2 times"),
        (_with("received", "plain", ["2"]), "plain: 8 is missing, and its put returned"),
        (_with("received", "plain", ["2", "8", "11"]), "plain: 11 was never put"),
        (_with("received", "plain", ["8", "2"]), "plain: not in the order of the calls"),
        (replace(RIGHT, left={"outbox": 3}), "pubsub.outbox has 3 rows"),
    ],
)  # fmt: skip
def test_the_audit_objects(facts: Facts, said: str) -> None:
    found = objections(facts)
    assert any(line.startswith(said) for line in found), found


def test_the_audit_sees_what_is_there_twice() -> None:
    assert doubled(RIGHT) == []
    assert doubled(_with("effects", "many", ["1 1 1", "1 1 1"])) == ["effects of many: 1 1 1 is there 2 times"]
    assert doubled(_with("received", "plain", ["2", "2", "2"])) == ["messages of plain: 2 is there 3 times"]


def test_the_audit_shares_no_code_with_the_product() -> None:
    imported: list[Any] = []
    for node in ast.walk(ast.parse(AUDIT.read_text())):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported.append(node.module)
    assert imported
    assert not [name for name in imported if name.startswith(("pubsub", "tests"))]
