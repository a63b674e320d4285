"""The uploaded files are the intended ones: built by a user's tools, installed in an empty environment, and used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_string
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from index_page import index_page
from packaging.metadata import Metadata
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PUBSUB"))}
    environment["HOME"] = str(cwd)
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    directory = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", directory, cwd=ROOT)
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as pip does it."""
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=sdist)
    (found,) = directory.glob("*.whl")
    return found


def needed(name: str) -> set[str]:
    """The distributions that this one says it needs, and what they need, without extras."""
    found = {name}
    for line in distribution(name).requires or ():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            found |= needed(wanted.name)
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the wheel and what it says it needs, and nothing else.

    What is needed is taken from the environment that runs the tests, so that nothing has to be fetched.
    """
    directory = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=directory)
    (packages,) = directory.glob("lib/python*/site-packages")
    for name in needed("pirate-pubsub") - {"pirate-pubsub"}:
        one = distribution(name)
        for top in {file.parts[0] for file in one.files or () if file.parts[0] != ".."}:
            target = packages / top
            if not target.exists() and Path(str(one.locate_file(top))).exists():
                target.symlink_to(Path(str(one.locate_file(top))))
    interpreter = directory / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(interpreter), "--disable-pip-version-check"]
    run(*pip, "install", "--no-index", wheel, cwd=directory)
    return interpreter


@pytest.mark.slow
def test_the_source_distribution_has_the_files_that_its_readme_names(sdist: Path) -> None:
    for name in re.findall(r"\]\((?!\w+:)([^)#]+)\)", (sdist / "README.md").read_text()):
        assert (sdist / name).exists(), name
    for name in (
        "docs/commands.md",
        "examples/orders.py",
        "tests/scripts/test_packaging.py",
        "scripts/demo",
        "benchmarks/__main__.py",
        "constraints.txt",
        "PKG-INFO",
    ):
        assert (sdist / name).exists(), name
    tracked = subprocess.run(
        ["git", "ls-files", "docs", "pubsub"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert [name for name in tracked.stdout.splitlines() if not (sdist / name).exists()] == []


def test_the_wheel_has_only_the_package(wheel: Path) -> None:
    with ZipFile(wheel) as packed:
        tops = {name.split("/")[0] for name in packed.namelist()}
        assert {top for top in tops if not top.endswith(".dist-info")} == {"pubsub", "pyspark_pubsub.py"}
        assert "pubsub/py.typed" in packed.namelist()
        benches = {name for name in packed.namelist() if "bench" in name}
        assert {name.rpartition("/")[2] for name in benches} == {
            "__init__.py", "command.py", "floors.py", "measures.py", "stage.py", "table.py"
        }  # fmt: skip
        assert all(name.startswith("pubsub/cli/bench/") for name in benches), "all others are benchmarks/ of a clone"


def metadata_of(wheel: Path) -> str:
    with ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        return packed.read(name).decode()


def test_the_distributions_have_the_version_of_the_project_and_of_the_changelog(wheel: Path, sdist: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for text in (metadata_of(wheel), (sdist / "PKG-INFO").read_text()):
        assert str(Metadata.from_email(text, validate=True).version) == version  # An index refuses what is not valid.
    assert sdist.name == f"pirate_pubsub-{version}"
    sections = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert next(name for name in sections if name != "Unreleased").split()[0] == version


def test_every_link_on_the_page_for_an_index_works(wheel: Path) -> None:
    metadata = message_from_string(metadata_of(wheel))
    page = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "exactly once" in page
    assert re.findall(r"\]\((?!https?://)[^)]*\)", page) == []
    assert "`docs/commands.md`" in page


def test_links_become_absolute_where_the_repository_has_an_address() -> None:
    readme = "[Spark](docs/spark.md), [docs/a.md](docs/a.md#b), [there](https://x.invalid/y), [here](#why)"
    assert index_page(readme, "https://x.invalid/r/blob/main/") == (
        "[Spark](https://x.invalid/r/blob/main/docs/spark.md), [docs/a.md](https://x.invalid/r/blob/main/docs/a.md#b),"
        " [there](https://x.invalid/y), [here](#why)"
    )
    assert index_page(readme, None) == (
        "Spark (`docs/spark.md`), [docs/a.md](docs/a.md#b), [there](https://x.invalid/y), [here](#why)"
    ).replace("[docs/a.md](docs/a.md#b)", "docs/a.md (`docs/a.md#b`)")


def test_a_picture_without_a_public_address_is_omitted() -> None:
    assert index_page("![The page](docs/page.png)", None) == ""
    assert (
        index_page("![The page](docs/page.png)", "https://x.invalid/r")
        == "![The page](https://x.invalid/r/docs/page.png)"
    )


USE = """
import pubsub
from pubsub import embedded

assert pubsub.__file__.startswith({prefix!r}), pubsub.__file__
with embedded() as cluster, cluster.client("c") as client:
    client.subscribe("t")
    client.put("t", b"hello")
    print(client.get("t", timeout=120).body)
"""


@pytest.mark.slow
def test_the_wheel_works_without_the_repository(python: Path, tmp_path: Path) -> None:
    command = python.with_name("pubsub")
    assert re.fullmatch(r"pubsub \d+\.\d+\.\d+\n", run(command, "--version", cwd=tmp_path))
    assert "exactly-once" in run(command, "--help", cwd=tmp_path)
    for group in ("up", "proxy start", "server start", "client c get", "status", "topic move", "config show", "bench"):
        run(command, *group.split(), "--help", cwd=tmp_path)
    run(command, "config", "show", cwd=tmp_path)
    assert run(python, "-c", USE.format(prefix=str(python.parents[1])), cwd=tmp_path) == "b'hello'\n"
