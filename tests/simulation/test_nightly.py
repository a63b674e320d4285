"""Long runs: the progress of a commit is kept, continues, and is shown with the situations that never occurred."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.simulation.nightly import NOT_SIMULATED, SITUATIONS, Night, commit_of

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0


def run(directory: Path, *, dirty: bool = False) -> Night:
    night = Night("c" * 40, dirty, directory)
    part = night.begin(100 if night.next_seed is None else night.next_seed)
    for seed in range(part.first + part.seeds, part.first + part.seeds + 3):
        part.add(seed, ["lost"] if seed == 101 else [], 1_000, {next(iter(SITUATIONS)): 1, "fault: kill": 2}, 0.5)
    night.save()
    return night


def test_a_run_continues_after_the_last_run_of_its_commit(tmp_path: Path) -> None:
    run(tmp_path)
    night = run(tmp_path)
    assert (night.operations, night.next_seed, night.found()) == (6_000, 106, {101: ["lost"]})
    assert "| 100 to 105 | 6 | 6,000 | 120,000 | 1 |" in night.tables()
    assert "Seed 101: lost" in night.tables()
    assert set(night.missing()) == set(SITUATIONS) - {next(iter(SITUATIONS)), "fault: kill"}


def test_another_range_is_a_separate_row(tmp_path: Path) -> None:
    run(tmp_path)
    night = Night("c" * 40, False, tmp_path)
    night.begin(5_000).add(5_000, [], 10, {}, 0.1)
    assert [part.first for part in night.ranges] == [100, 5_000]
    assert "| in all | 4 | 3,010 |" in night.tables()


def test_a_run_with_uncommitted_changes_is_not_kept_and_says_so(tmp_path: Path) -> None:
    night = run(tmp_path, dirty=True)
    assert not list(tmp_path.iterdir())
    assert "with changes that are not committed" in night.tables()


def test_a_terminated_run_reports_its_work(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "simulate.py"), "--overnight", "9000000", "--seed", "77"]
    command += ["--workers", "1", "--kept", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("seeds from 77\n")
        deadline = time.monotonic() + PATIENCE_SECONDS
        process.send_signal(signal.SIGTERM)
        out = process.stdout.read()
        assert process.wait(deadline - time.monotonic()) in {0, 1}
    assert "| seeds | how many | operations |" in out
    assert "to go on: scripts/simulate --overnight 9000000 --seed " in out


def test_a_new_count_begins_only_after_a_change_that_a_run_depends_on(tmp_path: Path) -> None:
    def git(*command: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@localhost", *command], cwd=tmp_path, check=True)

    def commit(name: str) -> tuple[str, bool]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        git("add", "-A")
        git("commit", "-qm", name)
        return commit_of(tmp_path)

    git("init", "-q")
    first = commit("pubsub/a.py")
    assert commit("docs/a.md") == first
    assert commit(f"pubsub/{NOT_SIMULATED[0]}/a.py") == first
    assert commit("tests/simulation/a.py") != first
    (tmp_path / "docs" / "a.md").write_text("changed")
    assert not commit_of(tmp_path)[1]
    (tmp_path / "pubsub" / "a.py").write_text("changed")
    assert commit_of(tmp_path)[1]


def test_a_run_imports_nothing_of_the_folders_that_do_not_count() -> None:
    program = (
        "import sys; from tests.simulation.simulation import shortened, simulate; simulate(7, shortened(7));"
        "print(*{name.split('.')[1] for name in sys.modules if name.startswith('pubsub.')})"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    imported = set(ran.stdout.split())
    assert {"client", "proxy", "server"} <= imported
    assert not imported & set(NOT_SIMULATED)
