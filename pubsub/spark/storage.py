"""Directories at all places that Spark supports: on this machine, or in a file system of Hadoop."""

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
        """Return True if the directory, or an entry in it, exists."""

    def names(self) -> list[str]:
        """Return the names in it; empty if it does not exist."""

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield every file below it: its relative path, and its modification time in milliseconds, by the file
        system's clock.
        """

    def remove(self, name: str) -> None:
        """Delete a file in it."""

    def read(self, name: str) -> str:
        """Return the text of a file in it."""

    def write(self, name: str, text: str) -> None:
        """Write a file in it; the file is complete or absent."""


def is_local(path: str) -> bool:
    """Return True if the path is on this machine, so that no Spark is needed."""
    return "://" not in path


def open_storage(spark: SparkSession | None, path: str) -> Storage:
    """Open a directory.

    Args:
        spark: required for a path that is not on this machine.
    """
    if is_local(path):
        return Folder(path)
    assert spark is not None
    return Remote(spark, path)


class Folder:
    """A directory of this machine; its methods raise StorageError."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def has(self, name: str = "") -> bool:
        return (self._path / name).exists()

    def names(self) -> list[str]:
        return sorted(path.name for path in self._path.iterdir()) if self._path.is_dir() else []

    def files(self) -> Iterator[tuple[str, int]]:
        for path in self._path.rglob("*"):
            if path.is_file():
                yield path.relative_to(self._path).as_posix(), path.stat().st_mtime_ns // 1_000_000

    def remove(self, name: str) -> None:
        path = self._path / name
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum file.

    def read(self, name: str) -> str:
        return (self._path / name).read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        fresh = self._path / f".{name}.fresh"
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            fresh.write_text(text, encoding="utf-8")
            sync(fresh)  # Otherwise a power cut could leave an empty file.
            fresh.replace(self._path / name)
            sync(self._path)
        except OSError as error:
            raise StorageError(str(self._path / name), error.strerror or str(error)) from None


class Remote:
    """A directory in HDFS, an object store or another file system of Hadoop.

    Args:
        path: URL with its scheme.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm = cast(Any, spark._jvm)
        self._paths = self._jvm.org.apache.hadoop.fs.Path
        self._path = path
        self._files = self._paths(path).getFileSystem(spark._jsc.hadoopConfiguration())

    def has(self, name: str = "") -> bool:
        return bool(self._files.exists(self._at(name)))

    def names(self) -> list[str]:
        if not self.has():
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._at("")))

    def files(self) -> Iterator[tuple[str, int]]:
        root = self._files.makeQualified(self._at("")).toString()
        found = self._files.listFiles(self._at(""), True)
        while found.hasNext():
            status = found.next()
            yield status.getPath().toString().removeprefix(f"{root}/"), int(status.getModificationTime())

    def remove(self, name: str) -> None:
        self._files.delete(self._at(name), False)

    def read(self, name: str) -> str:
        stream = self._files.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
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
