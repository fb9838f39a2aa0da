"""A corpus: text that is tokenized once and stored in memory-mapped files with a manifest.

The folder is named after the hash of source, tokenizer and format. It is written under another name and renamed, so it
appears complete or not at all. Opening it compares it with its manifest, and that and the positions of documents with
checksums; folders of older versions have none.

Documents are held out by the hash of their content. The first one always is, so that there is something to evaluate on.
A long document, such as a single file that contains everything, is cut into parts that count as documents.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from widthwise.data.sources import Source
from widthwise.data.tokenizers import Tokenizer

FORMAT = 1
HELD_OUT = 0.05
PART = 1 << 16
SHORTEST_PART = 256
SPLITS = ("train", "eval")
CHECKSUMS = "checksums.json"
_CHECK_WHOLE_UP_TO = 1 << 30
_EDGE = 1 << 20

OnProgress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes tokenized so far."""


@dataclass(frozen=True)
class Tokens:
    """One split: its concatenated tokens, and the position where each document starts."""

    tokens: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class Corpus:
    """A tokenized corpus on disk.

    Attributes:
        folder: Its folder.
        manifest: Its description: source fingerprint, tokenizer, counts, checksums.
        train: The tokens to train on.
        held_out: The tokens to evaluate on.
    """

    folder: Path
    manifest: dict[str, Any]
    train: Tokens
    held_out: Tokens

    @property
    def vocabulary(self) -> int:
        """The vocabulary size of its tokenizer."""
        return self.manifest["tokenizer"]["vocabulary"]


def cache_folder() -> Path:
    """Return the folder for tokenized text: $WIDTHWISE_CACHE, or widthwise in the user's cache folder."""
    if named := os.environ.get("WIDTHWISE_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "widthwise"


def prepare(
    source: Source, tokenizer: Tokenizer, *, cache: Path | None = None, progress: OnProgress = lambda _: None
) -> Corpus:
    """Open the corpus of a source and a tokenizer, tokenizing it first if necessary."""
    fingerprint = source.fingerprint()
    identity = {
        "format": FORMAT,
        "source": fingerprint,
        "tokenizer": tokenizer.hash,
        "held_out": HELD_OUT,
        "part": PART,
    }
    name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    folder = (cache or cache_folder()) / f"{source.name}-{name}"
    if not folder.exists():
        _write(folder, source, tokenizer, {**identity, "source": fingerprint}, progress)
    return open_corpus(folder, tokenizer=tokenizer)


def open_corpus(folder: Path, *, tokenizer: Tokenizer | None = None) -> Corpus:
    """Open a tokenized corpus; raise if it is damaged or was made by another tokenizer."""
    try:
        _check_small_files(folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["format"] != FORMAT:
            raise ValueError(
                f"{str(folder)!r} has format {manifest['format']}, expected {FORMAT}: delete it to create it again"
            )
        if tokenizer is not None and manifest["tokenizer"]["hash"] != tokenizer.hash:
            raise ValueError(
                f"{str(folder)!r} was tokenized by {manifest['tokenizer']['name']!r}, not by this {tokenizer.name!r}"
            )
        train, held_out = (_open_split(folder, split, manifest["splits"][split]) for split in SPLITS)
    except (OSError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{str(folder)!r} is not a tokenized corpus ({error}): delete it to create it again") from None
    return Corpus(folder, manifest, train, held_out)


def _open_split(folder: Path, split: str, entry: dict[str, Any]) -> Tokens:
    path = folder / f"{split}.tokens"
    size = path.stat().st_size
    if size != entry["bytes"]:
        raise ValueError(f"{str(path)!r} has {size} bytes, its manifest says {entry['bytes']}: delete {str(folder)!r}")
    whole = size <= _CHECK_WHOLE_UP_TO
    if _checksum(path, whole=whole) != entry["sha256" if whole else "sha256_edges"]:
        raise ValueError(f"{str(path)!r} has changed since it was written: delete {str(folder)!r} to create it again")
    tokens = np.memmap(path, np.dtype(entry["dtype"]), "r") if size else np.zeros(0, entry["dtype"])
    starts = folder / f"{split}.starts.npy"
    try:
        return Tokens(tokens, np.load(starts))
    except Exception as error:  # NumPy parses the header, and raises whatever the parser does
        raise ValueError(f"{str(starts)!r} is damaged ({error}): delete {str(folder)!r} to create it again") from None


def _small_files(folder: Path) -> list[Path]:
    return [folder / "manifest.json", *(folder / f"{split}.starts.npy" for split in SPLITS)]


def _check_small_files(folder: Path) -> None:
    path = folder / CHECKSUMS
    if not path.exists():
        return
    expected = json.loads(path.read_text())
    for file in _small_files(folder):
        if _checksum(file, whole=True) != expected[file.name]:
            raise ValueError(
                f"{str(file)!r} has changed since it was written: delete {str(folder)!r} to create it again"
            )


def _checksum(path: Path, *, whole: bool) -> str:
    with path.open("rb") as file:
        if whole:
            return hashlib.file_digest(file, "sha256").hexdigest()
        first = file.read(_EDGE)
        file.seek(-_EDGE, os.SEEK_END)
        return hashlib.sha256(first + file.read()).hexdigest()


def _write(folder: Path, source: Source, tokenizer: Tokenizer, identity: dict[str, Any], progress: OnProgress) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        part = PART
        size, splits = _tokenize(partial, source, tokenizer, part, progress)
        if splits["train"]["tokens"] < splits["eval"]["tokens"]:  # one short file: hold out a twentieth of it, not all
            part = max(SHORTEST_PART, round(size * HELD_OUT))
            _, splits = _tokenize(partial, source, tokenizer, part, progress)
        described = {"name": tokenizer.name, "hash": tokenizer.hash, "vocabulary": tokenizer.vocabulary}
        manifest = {**identity, "part": part, "tokenizer": described, "splits": splits}
        (partial / "manifest.json").write_text(json.dumps(manifest, indent=2))
        checksums = {file.name: _checksum(file, whole=True) for file in _small_files(partial)}
        (partial / CHECKSUMS).write_text(json.dumps(checksums, indent=2))
        try:
            partial.rename(folder)
        except OSError:
            if not folder.exists():  # otherwise another process has written the same content
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _tokenize(
    folder: Path, source: Source, tokenizer: Tokenizer, part: int, progress: OnProgress
) -> tuple[int, dict[str, Any]]:
    """Write the tokens of both splits; return the bytes of text, and the manifest's entry for each split."""
    dtype = np.dtype(np.uint16 if tokenizer.vocabulary <= 1 << 16 else np.uint32)
    starts: dict[str, list[int]] = {split: [] for split in SPLITS}
    counts = dict.fromkeys(SPLITS, 0)
    done = 0
    files = {split: (folder / f"{split}.tokens").open("wb") for split in SPLITS}
    try:
        for number, document in enumerate(some for whole in source.documents() for some in parts(whole, part)):
            split = "eval" if number == 0 or _held_out(document) else "train"
            tokens = tokenizer.encode(document).astype(dtype)
            files[split].write(tokens.tobytes())
            starts[split].append(counts[split])
            counts[split] += len(tokens)
            done += len(document)
            progress(done)
    finally:
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
    if not done:
        raise ValueError(f"the files of {source.name!r} are empty: expected some text")
    entries: dict[str, Any] = {}
    for split in SPLITS:
        np.save(folder / f"{split}.starts.npy", np.array(starts[split], np.int64))
        path = folder / f"{split}.tokens"
        size = path.stat().st_size
        entries[split] = {
            "documents": len(starts[split]),
            "tokens": counts[split],
            "bytes": size,
            "dtype": dtype.name,
            "sha256": _checksum(path, whole=True),
            "sha256_edges": _checksum(path, whole=False) if size > _CHECK_WHOLE_UP_TO else None,
        }
    return done, entries


def parts(document: bytes, at_most: int = PART) -> Iterator[bytes]:
    r"""Cut a long document into parts, after a line break if possible, never inside a UTF-8 character.

    >>> list(parts(b"one\ntwo\nthree", at_most=6))
    [b'one\n', b'two\n', b'three']
    """
    begin = 0
    while len(document) - begin > at_most:
        end = document.rfind(b"\n", begin, begin + at_most) + 1
        if not end:
            end = begin + at_most
            while end > begin + 1 and document[end] & 0xC0 == 0x80:
                end -= 1
        yield document[begin:end]
        begin = end
    yield document[begin:]


def _held_out(document: bytes) -> bool:
    return int.from_bytes(hashlib.sha256(document).digest()[:4]) < HELD_OUT * 2**32
