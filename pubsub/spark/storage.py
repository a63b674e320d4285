"""Directories wherever Spark can have them: on this machine, or where its Hadoop knows the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, cast

from pyspark.sql import SparkSession

from pubsub.client.files import sync
from pubsub.errors import StorageError


class Storage(Protocol):
    """A directory; a path within it is text with `/`."""

    def has(self, name: str = "") -> bool:
        """Whether it, or something in it, is there."""

    def names(self) -> list[str]:
        """What is in it; nothing where it is not there."""

    def files(self) -> Iterator[tuple[str, int]]:
        """Every file below it, by its path from there, and when it was written: milliseconds, by its system's clock."""

    def remove(self, name: str) -> None:
        """Delete a file in it."""

    def read(self, name: str) -> str:
        """The text of a file in it."""

    def write(self, name: str, text: str) -> None:
        """Make a file in it that is there whole or not at all."""


def is_local(path: str) -> bool:
    """Whether a path is one of this machine's, for which no Spark is needed."""
    return "://" not in path


def open_storage(spark: SparkSession | None, path: str) -> Storage:
    """A directory.

    Args:
        spark: for a path that is not of this machine.
    """
    if is_local(path):
        return Folder(path)
    assert spark is not None
    return Remote(spark, path)


class Folder:
    """A directory of this machine.

    Args:
        path: of it.

    Its methods raise StorageError.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def has(self, name: str = "") -> bool:
        """See Storage."""
        return (self._path / name).exists()

    def names(self) -> list[str]:
        """See Storage."""
        return sorted(path.name for path in self._path.iterdir()) if self._path.is_dir() else []

    def files(self) -> Iterator[tuple[str, int]]:
        """See Storage."""
        for path in self._path.rglob("*"):
            if path.is_file():
                yield path.relative_to(self._path).as_posix(), path.stat().st_mtime_ns // 1_000_000

    def remove(self, name: str) -> None:
        """See Storage."""
        path = self._path / name
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of it.

    def read(self, name: str) -> str:
        """See Storage."""
        return (self._path / name).read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        """See Storage."""
        fresh = self._path / f".{name}.fresh"
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            fresh.write_text(text, encoding="utf-8")
            sync(fresh)  # Else a power cut may leave an empty file of that name.
            fresh.replace(self._path / name)
            sync(self._path)
        except OSError as error:
            raise StorageError(str(self._path / name), error.strerror or str(error)) from None


class Remote:
    """A directory in HDFS, an object store or another system of Hadoop's.

    Args:
        spark: the session.
        path: with its scheme.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm = cast(Any, spark._jvm)
        self._paths = self._jvm.org.apache.hadoop.fs.Path
        self._path = path
        self._files = self._paths(path).getFileSystem(spark._jsc.hadoopConfiguration())

    def has(self, name: str = "") -> bool:
        """See Storage."""
        return bool(self._files.exists(self._at(name)))

    def names(self) -> list[str]:
        """See Storage."""
        if not self.has():
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._at("")))

    def files(self) -> Iterator[tuple[str, int]]:
        """See Storage."""
        root = self._files.makeQualified(self._at("")).toString()
        found = self._files.listFiles(self._at(""), True)
        while found.hasNext():
            status = found.next()
            yield status.getPath().toString().removeprefix(f"{root}/"), int(status.getModificationTime())

    def remove(self, name: str) -> None:
        """See Storage."""
        self._files.delete(self._at(name), False)

    def read(self, name: str) -> str:
        """See Storage."""
        stream = self._files.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """See Storage."""
        fresh = self._at(f".{name}.fresh")
        stream = self._files.create(fresh, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not self._files.rename(fresh, self._at(name)):
            raise StorageError(f"{self._path}/{name}", "cannot be written")

    def _at(self, name: str) -> Any:
        return self._paths(f"{self._path}/{name}" if name else self._path)
