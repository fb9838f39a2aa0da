"""A run's data, from its specification: C4 shards in their own format, text, and the embedded corpus."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from widthwise.cli import main
from widthwise.data import Resident, SentencePiece, Text, train_sentencepiece
from widthwise.train import Spec, load_inputs, vocabulary_of


@pytest.fixture
def shards(tmp_path: Path, monkeypatch) -> str:
    """Two shards as C4 has them: gzipped lines of JSON with text, timestamp and url."""
    monkeypatch.setenv("WIDTHWISE_CACHE", str(tmp_path / "cache"))
    for number in range(2):
        rows = [
            {
                "text": f"Beginners BBQ class number {i} of shard {number} takes place in Missoula. " * (1 + i % 5),
                "timestamp": "2019-04-25T12:57:54Z",
                "url": f"https://example.org/{i}",
            }
            for i in range(200)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"c4-train.{number:05}-of-01024.json.gz").write_bytes(gzip.compress(lines.encode()))
    return str(tmp_path / "c4-train.*.json.gz")


def test_c4_shards_go_through_a_sentencepiece_model_with_bos(shards: str, tmp_path: Path):
    model = tmp_path / "small.model"
    train_sentencepiece(list(Text((shards,)).documents()), model, vocabulary=300)
    spec = Spec(data="c4", paths=(shards,), tokenizer=str(model), context=16, batch=4, eval_batches=2)
    inputs = load_inputs(spec)
    assert isinstance(inputs.batches, Resident)
    assert inputs.batches.vocabulary == 301
    item = inputs.batches.chunk(0, 1)[0]
    tokens = np.asarray(inputs.batches.reader.at(jax.numpy.asarray(inputs.batches.data), item))
    assert tokens.shape == (4, 17)
    assert (np.asarray(inputs.batches.data) == 300).sum() > 300  # a BOS for each document
    decoded = SentencePiece(model)._processor.decode([t for t in tokens.ravel().tolist() if t != 300])
    assert "Missoula" in decoded or "shard" in decoded
    assert inputs.fingerprint["source"] == "c4"
    assert inputs.fingerprint["files"] == 2


@pytest.mark.parametrize("vocabulary", [None, 300])
@pytest.mark.parametrize("data", ["text", "synthetic"])
def test_the_vocabulary_is_told_without_opening_the_data(shards: str, data: str, vocabulary: int | None):
    paths = (shards,) if data == "text" else ()
    spec = Spec(data=data, paths=paths, vocabulary=vocabulary, context=8, batch=2, eval_batches=1)
    assert vocabulary_of(spec) == load_inputs(spec).batches.vocabulary


def test_the_vocabulary_of_a_tokenizer_is_read_unless_it_is_given(tmp_path: Path):
    spec = Spec(data="c4", tokenizer=str(tmp_path / "t5.model"))
    assert vocabulary_of(replace(spec, vocabulary=32101)) == 32101
    with pytest.raises(ValueError, match=r"t5\.model"):
        vocabulary_of(spec)


def test_a_tokenizer_is_trained_on_the_command_line(shards: str, tmp_path: Path, capsys):
    out = tmp_path / "mine.model"
    assert main(["tokenizer", "--paths", shards, "--vocabulary", "310", "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    assert SentencePiece(out).vocabulary == 311
    assert main(["tokenizer", "--paths", shards, "--vocabulary", "310", "--out", str(out)]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["tokenizer", "--paths", "/nowhere", "--out", str(tmp_path / "other.model")]) == 2
    assert "gives no text" in capsys.readouterr().err


def test_the_initialization_seed_changes_nothing_of_the_data(shards: str):
    first, second = (
        load_inputs(Spec(data="c4", paths=(shards,), context=16, batch=4, seed=seed)).batches.chunk(3, 2)
        for seed in (0, 1)
    )
    np.testing.assert_array_equal(first, second)
    other = load_inputs(Spec(data="c4", paths=(shards,), context=16, batch=4, data_seed=1)).batches.chunk(3, 2)
    assert not np.array_equal(first, other)
