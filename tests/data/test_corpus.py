"""Text is tokenized once, whole or not at all, and what is opened is what was written."""

import contextlib
import gzip
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from widthwise.data import C4, Bytes, SentencePiece, Stdlib, Text, open_corpus, prepare, train_sentencepiece
from widthwise.data.corpus import cache_folder, parts

DOCUMENTS = [f"Document {i} says {'word ' * (i % 17)}and ends.\n".encode() for i in range(300)]
NOISE = random.Random(0).randbytes(300_000)


@pytest.fixture
def text(tmp_path: Path) -> Text:
    folder = tmp_path / "text"
    folder.mkdir()
    for i, document in enumerate(DOCUMENTS):
        (folder / f"{i:03}.txt").write_bytes(document)
    return Text((str(folder),))


def all_tokens(corpus) -> list[int]:
    return sorted(np.concatenate([corpus.train.tokens, corpus.held_out.tokens]).tolist())


def test_every_document_is_kept_once_with_its_bos(text: Text, tmp_path: Path):
    corpus = prepare(text, Bytes(), cache=tmp_path)
    assert all_tokens(corpus) == sorted([*b"".join(DOCUMENTS), *[256] * 300])
    for split in (corpus.train, corpus.held_out):
        assert (split.tokens[split.starts] == 256).all()
    assert 2 <= len(corpus.held_out.starts) <= 40
    assert corpus.manifest["splits"]["train"]["tokens"] == len(corpus.train.tokens)
    assert corpus.vocabulary == 257


def test_the_split_goes_by_content_but_for_the_first_document(text: Text, tmp_path: Path):
    def held_out(cache: Path) -> set[bytes]:
        return set(bytes(prepare(text, Bytes(), cache=cache).held_out.tokens.astype(np.uint8)).split(b"\x00")) - {b""}

    before = held_out(tmp_path / "a")
    os.rename(Path(text.paths[0]) / "150.txt", Path(text.paths[0]) / "zzz.txt")
    os.rename(Path(text.paths[0]) / "007.txt", Path(text.paths[0]) / "aaa.txt")
    assert held_out(tmp_path / "b") == before
    assert DOCUMENTS[0] in before


@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode), st.integers(8, 50))
def test_parts_of_a_document_are_the_document(document: bytes, at_most: int):
    cut = list(parts(document, at_most=at_most))
    assert b"".join(cut) == document
    assert all(len(part) <= at_most for part in cut)
    with contextlib.suppress(UnicodeDecodeError):
        document.decode()
        assert "".join(part.decode() for part in cut) == document.decode()


def test_it_is_tokenized_once_and_reused(text: Text, tmp_path: Path):
    seen: list[int] = []
    first = prepare(text, Bytes(), cache=tmp_path, progress=seen.append)
    assert seen[-1] == sum(map(len, DOCUMENTS))
    seen.clear()
    again = prepare(text, Bytes(), cache=tmp_path, progress=seen.append)
    assert seen == []
    assert again.folder == first.folder


def test_another_text_is_another_corpus(text: Text, tmp_path: Path):
    first = prepare(text, Bytes(), cache=tmp_path)
    (Path(text.paths[0]) / "000.txt").write_bytes(b"changed")
    assert prepare(text, Bytes(), cache=tmp_path).folder != first.folder


def test_an_interrupt_leaves_nothing_behind(text: Text, tmp_path: Path):
    def interrupt(done: int) -> None:
        if done > 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(text, Bytes(), cache=tmp_path / "cache", progress=interrupt)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / "train.tokens").write_bytes(b"\0" * 10), "has 10 bytes, its manifest says"),
        (lambda folder: _flip(folder / "train.tokens"), "has changed since it was written"),
        (lambda folder: _flip(folder / "train.starts.npy"), "starts.npy' has changed since it was written"),
        (lambda folder: _flip(folder / "manifest.json"), "manifest.json' has changed since it was written"),
        (lambda folder: _of_before(folder, "eval.starts.npy").write_bytes(b""), "starts.npy' is damaged"),
        (lambda folder: _of_before(folder, "manifest.json").write_text("{"), "is not a tokenized corpus"),
        (lambda folder: _of_before(folder, "manifest.json").write_text("[]"), "is not a tokenized corpus"),
        (lambda folder: _of_before(folder, "manifest.json").write_bytes(b"\xff"), "is not a tokenized corpus"),
        (lambda folder: (folder / "checksums.json").write_text("[]"), "is not a tokenized corpus"),
        (lambda folder: (folder / "eval.tokens").unlink(), "is not a tokenized corpus"),
        (lambda folder: _of_before(folder, "manifest.json").write_text('{"format": 99}'), "has format 99, expected 1"),
    ],
)
def test_a_damaged_corpus_is_refused_in_one_line(text: Text, tmp_path: Path, damage, named: str):
    folder = prepare(text, Bytes(), cache=tmp_path).folder
    damage(folder)
    with pytest.raises(ValueError, match=named) as error:
        prepare(text, Bytes(), cache=tmp_path)
    assert "\n" not in str(error.value)


def _of_before(folder: Path, name: str) -> Path:
    """Return a file of a folder that an older version wrote, without checksums."""
    (folder / "checksums.json").unlink()
    return folder / name


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)


def test_the_standard_library_is_text_enough_and_has_a_fingerprint():
    source = Stdlib()
    fingerprint = source.fingerprint()
    assert fingerprint["bytes"] > 5_000_000
    assert fingerprint["files"] == len(source.files())
    assert len(fingerprint["sha256"]) == 64
    assert fingerprint["python"].count(".") == 2
    assert not any("test" in path.parts for path in source.files())
    assert fingerprint == Stdlib().fingerprint()


def test_every_kind_of_file_is_read(tmp_path: Path):
    lines = b"".join(json.dumps({"text": f"line {i}", "url": "x"}).encode() + b"\n" for i in range(3))
    (tmp_path / "a.txt").write_bytes(b"plain")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"squeezed"))
    (tmp_path / "c.txt.zst").write_bytes(zstandard.compress(b"squashed"))
    (tmp_path / "d.jsonl").write_bytes(lines)
    (tmp_path / "c4-train.00000-of-01024.json.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "e.png").write_bytes(b"no text")
    documents = list(Text((str(tmp_path),)).documents())
    assert sorted(documents) == sorted([b"plain", b"squeezed", b"squashed", *[b"line 0", b"line 1", b"line 2"] * 2])
    assert list(Text((str(tmp_path / "*.txt"),)).documents()) == [b"plain"]
    assert len(list(Text((str(tmp_path / "c4-train.*.json.gz"),)).documents())) == 3


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("x.jsonl", b'{"text": "fine"}\n{"body": 1}\n', "line 2 of .*x.jsonl' is not a JSON object with a field"),
        ("x.json.gz", b"not gzip", "x.json.gz' cannot be read"),
        ("x.txt.gz", gzip.compress(b"cut off" * 100, mtime=0)[:-12], "x.txt.gz' cannot be read"),
        ("x.txt.gz", gzip.compress(b"damaged", mtime=0)[:10] + b"\xff" * 20, "x.txt.gz' cannot be read"),
        ("x.txt.zst", b"not zst", "x.txt.zst' cannot be read"),
        ("x.txt.zst", zstandard.compress(NOISE)[:-1], "x.txt.zst' cannot be read"),
        ("x.txt.zst", zstandard.compress(NOISE)[:100], "x.txt.zst' cannot be read"),
    ],
    ids=["no text field", "no gzip", "gzip cut off", "gzip damaged", "no zst", "zst one byte short", "zst cut off"],
)
def test_files_that_cannot_be_read_are_named(tmp_path: Path, name: str, content: bytes, named: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=named):
        prepare(Text((str(tmp_path / name),)), Bytes(), cache=tmp_path / "cache")


def test_compressed_files_that_were_joined_are_read_to_the_end(tmp_path: Path):
    (tmp_path / "x.txt.zst").write_bytes(zstandard.compress(NOISE) + zstandard.compress(b"the end"))
    assert list(Text((str(tmp_path / "x.txt.zst"),)).documents()) == [NOISE + b"the end"]


def test_a_path_without_text_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match="gives no text: expected files, folders or patterns"):
        Text((str(tmp_path / "nowhere"),)).files()
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(ValueError, match="the files of 'text' are empty"):
        prepare(Text((str(tmp_path / "empty.txt"),)), Bytes(), cache=tmp_path)


def test_a_sentencepiece_model_is_trained_written_and_used(text: Text, tmp_path: Path):
    trained = train_sentencepiece(list(text.documents()), tmp_path / "models" / "small.model", vocabulary=300)
    assert trained.vocabulary == 301
    tokens = trained.encode(b"Document 7 says word")
    assert tokens[0] == 300
    assert len(tokens) < 20
    assert SentencePiece(tmp_path / "models" / "small.model").hash == trained.hash
    corpus = prepare(text, trained, cache=tmp_path)
    assert corpus.vocabulary == 301
    assert len(corpus.train.tokens) < len(prepare(text, Bytes(), cache=tmp_path).train.tokens)
    with pytest.raises(ValueError, match=r"was tokenized by 'sentencepiece small.model', not by this 'bytes'"):
        open_corpus(corpus.folder, tokenizer=Bytes())


def test_what_is_not_a_sentencepiece_model_is_named(tmp_path: Path):
    (tmp_path / "wrong.model").write_bytes(b"nonsense")
    for path in (tmp_path / "wrong.model", tmp_path / "missing.model"):
        with pytest.raises(ValueError, match="is not a SentencePiece model that can be read"):
            SentencePiece(path)
    with pytest.raises(ValueError, match="there is no text to train a SentencePiece model on"):
        train_sentencepiece([b"", b"\n"], tmp_path / "x.model", vocabulary=300)
    with pytest.raises(ValueError, match="no SentencePiece model with 100000 pieces: Vocabulary size too high"):
        train_sentencepiece([b"too little text"], tmp_path / "x.model", vocabulary=100000)


def test_c4_by_name_without_datasets_says_what_to_do(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ValueError, match="give local c4-train"):
        next(C4().documents())


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("WIDTHWISE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("WIDTHWISE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/widthwise")


@pytest.mark.parametrize("size", [3_000, 40_000, 66_000])
def test_a_single_short_file_is_mostly_trained_on(tmp_path: Path, size: int):
    file = tmp_path / "mine.txt"
    file.write_bytes(b"".join(b"line %d of a text\n" % i for i in range(size))[:size])
    corpus = prepare(Text((str(file),)), Bytes(), cache=tmp_path / "cache")
    splits = corpus.manifest["splits"]
    assert 0.02 * size < splits["eval"]["tokens"] < 0.25 * size
    assert splits["train"]["tokens"] > 0.75 * size
