"""Sources of text: Python's standard library, your own files, and the paper's C4.

A source provides documents, and a fingerprint of their exact content, which is recorded with every run.
"""

import glob
import gzip
import hashlib
import io
import json
import os
import platform
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

ENDINGS = (".txt", ".jsonl", ".json", ".gz", ".zst")
_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "__pycache__"}


class Source(Protocol):
    """The interface of a source of documents."""

    @property
    def name(self) -> str:
        """The name to print."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """Return a description that differs between sources with different documents."""
        ...

    def documents(self) -> Iterator[bytes]:
        """Yield the documents in a fixed order."""
        ...


@dataclass(frozen=True)
class Stdlib:
    """The source code of the running Python's standard library, without tests: about 10 MB, no download."""

    name: str = "stdlib"

    def files(self) -> list[Path]:
        """Return its files in a fixed order."""
        root, found = self._root(), list[Path]()
        for folder, below, names in os.walk(root):
            below[:] = set(below) - _NOT_LIBRARY  # do not even list installed packages: there may be many
            found += [Path(folder, name).relative_to(root) for name in names if name.endswith(".py")]
        return sorted(found)

    def fingerprint(self) -> dict[str, Any]:
        """Return Python's version, and one hash of the names, sizes and contents of all files."""
        digest, total, files = hashlib.sha256(), 0, self.files()
        for path in files:
            content = (self._root() / path).read_bytes()
            total += len(content)
            digest.update(f"{path.as_posix()} {len(content)} {hashlib.sha256(content).hexdigest()}\n".encode())
        return {
            "source": self.name,
            "python": platform.python_version(),
            "files": len(files),
            "bytes": total,
            "sha256": digest.hexdigest(),
        }

    def documents(self) -> Iterator[bytes]:
        """Yield the files."""
        for path in self.files():
            yield (self._root() / path).read_bytes()

    def _root(self) -> Path:
        return Path(sysconfig.get_paths()["stdlib"])


@dataclass(frozen=True)
class Text:
    """Text files, plain or compressed: one document per file, or per line of `.jsonl` (its field `text`).

    Attributes:
        paths: Files, folders (all files in them with a known extension), and patterns such as `data/**/*.txt`.
        name: The name to print.
    """

    paths: tuple[str, ...]
    name: str = "text"

    def files(self) -> list[Path]:
        """Return the files in a fixed order; raise if a path matches none."""
        found: list[Path] = []
        for pattern in self.paths:
            here = Path(pattern).expanduser()
            if here.is_dir():
                files = [path for path in here.rglob("*") if path.is_file() and path.suffix in ENDINGS]
            elif here.is_file():
                files = [here]
            else:
                files = [Path(path) for path in glob.glob(str(here), recursive=True) if Path(path).is_file()]
            if not files:
                raise ValueError(
                    f"{pattern!r} gives no text: expected files, folders or patterns with {', '.join(ENDINGS)}"
                )
            found += files
        return sorted(dict.fromkeys(found))

    def fingerprint(self) -> dict[str, Any]:
        """Return the hash of names and contents of all files."""
        digest, total, files = hashlib.sha256(), 0, self.files()
        for path in files:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            total += path.stat().st_size
            digest.update(f"{path.name} {content}\n".encode())
        return {"source": self.name, "files": len(files), "bytes": total, "sha256": digest.hexdigest()}

    def documents(self) -> Iterator[bytes]:
        """Yield the documents of all files."""
        for path in self.files():
            yield from _read(path)


@dataclass(frozen=True)
class C4:
    """C4 streamed from the Hugging Face Hub by `datasets`. For local shards, use `Text`."""

    split: str = "train"
    documents_at_most: int = 1_000_000
    name: str = "c4"

    def fingerprint(self) -> dict[str, Any]:
        """Return what is requested from the Hub."""
        return {
            "source": self.name,
            "dataset": "allenai/c4 en",
            "split": self.split,
            "documents": self.documents_at_most,
        }

    def documents(self) -> Iterator[bytes]:
        """Stream the documents."""
        try:
            import datasets  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ValueError(
                "C4 from the Hub needs `datasets`: pip install 'widthwise[c4]', or give local c4-train.*.json.gz shards"
            ) from None
        stream = datasets.load_dataset("allenai/c4", "en", split=self.split, streaming=True)
        for count, row in enumerate(stream):
            if count >= self.documents_at_most:
                return
            yield row["text"].encode()


def _read(path: Path) -> Iterator[bytes]:
    inner = path.name.removesuffix(".gz").removesuffix(".zst")
    try:
        with _open(path) as file:
            if inner.endswith((".jsonl", ".json")):
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        yield _text_of(path, number, line)
            else:
                yield file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from None


def _text_of(path: Path, number: int, line: bytes) -> bytes:
    try:
        return json.loads(line)["text"].encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"line {number} of {str(path)!r} is not a JSON object with a field 'text'") from None


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"))  # pyright: ignore[reportArgumentType]
    if path.suffix == ".zst":
        try:
            import zstandard
        except ImportError:
            raise ValueError(f"{str(path)!r} needs zstandard: pip install 'widthwise[text]'") from None
        return io.BufferedReader(_Frames(path, zstandard))
    return path.open("rb")


class _Frames(io.RawIOBase):
    """The content of a file compressed by Zstandard, whose own reader takes a file that is cut off for a whole one."""

    def __init__(self, path: Path, zstandard: Any) -> None:
        self._file, self._zstandard = path.open("rb"), zstandard
        self._frame: Any = None
        self._read = self._content()
        self._left = memoryview(b"")

    def _content(self) -> Iterator[bytes]:
        while piece := self._file.read(1 << 16):
            while piece:
                self._frame = self._frame or self._zstandard.ZstdDecompressor().decompressobj()
                try:
                    yield self._frame.decompress(piece)
                except self._zstandard.ZstdError as error:
                    raise OSError(str(error)) from None
                piece = self._frame.unused_data
                if self._frame.eof:
                    self._frame = None
        if self._frame is not None:
            raise EOFError("Compressed file ended before the end of a frame was reached")

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read some bytes; none at the end."""
        while not self._left:
            more = next(self._read, None)
            if more is None:
                return 0
            self._left = memoryview(more)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
