"""The Python that Spark's workers run on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import platformdirs
import pyspark
import pytest

from pubsub.spark import workers

ROOT = Path(__file__).parents[2]
ZIP = Path(pyspark.__file__).parent / "python" / "lib" / workers.ZIP


def run(python: str | Path, *words: str) -> str:
    """Run a Python with PySpark's zip file in front of its path, as Spark does; return what it prints."""
    path = os.pathsep.join(map(str, (ZIP, ROOT)))
    done = subprocess.run(
        [python, *words], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache."""
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))
    return tmp_path / "pirate-pubsub"


def test_the_script_is_the_same_python(cache: Path) -> None:
    script = workers.python()
    assert Path(script).parent == cache / "python"
    assert run(script, "-c", "import sys; print(sys.executable)") == sys.executable
    assert workers.python() == script


def test_a_module_of_the_script_takes_the_installed_pyspark(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "where.py").write_text("import pyspark; print(pyspark.__file__)")
    words = ("-c", f"import sys; sys.path.append({str(tmp_path)!r}); sys.argv = ['', '-m', 'where']")
    begin = f"{words[1]}; from pubsub.spark.workers import main; main()"
    assert run(sys.executable, "-c", begin) == pyspark.__file__
    assert ZIP.name in run(sys.executable, "-c", "import pyspark; print(pyspark.__file__)")


def test_the_zip_file_stays_where_pyspark_is_installed_nowhere_else() -> None:
    code = f"import sys; from pubsub.spark.workers import leave_zip; sys.path[:] = [{str(ZIP)!r}]; leave_zip()"
    assert run(sys.executable, "-c", f"{code}; print(*sys.path)") == str(ZIP)


def test_a_cache_that_cannot_be_written_leaves_this_python(cache: Path) -> None:
    cache.write_text("a file")
    assert workers.python() == sys.executable


def test_a_cache_without_execution_leaves_this_python(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.X_OK)
    assert workers.python() == sys.executable
