"""What a step sees depends on seed and step alone, and is the same however it is loaded."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widthwise.data import (
    Bytes,
    Corpus,
    Order,
    Resident,
    Streamed,
    Synthetic,
    Text,
    evaluation_batches,
    prepare,
    training_batches,
)
from widthwise.data.batches import pad_documents
from widthwise.data.corpus import Tokens


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    folder = tmp_path_factory.mktemp("text")
    for i in range(200):
        (folder / f"{i:03}.txt").write_bytes(bytes((i * j) % 251 for j in range(i)))
    return prepare(Text((str(folder),)), Bytes(), cache=tmp_path_factory.mktemp("cache"))


@given(st.integers(1, 3000), st.integers(0, 2**40), st.integers(0, 5), st.data())
def test_every_epoch_is_a_permutation(sequences: int, seed: int, epoch: int, data: st.DataObject):
    order = Order(sequences=sequences, batch=1, seed=seed)
    seen = order.steps(epoch * sequences, sequences).ravel()
    assert np.array_equal(np.sort(seen), np.arange(sequences))
    start = data.draw(st.integers(0, sequences - 1))
    assert np.array_equal(order.steps(epoch * sequences + start, 1).ravel(), seen[start : start + 1])


def test_orders_differ_between_seeds_and_epochs_and_look_random():
    first, other = (Order(sequences=1000, batch=10, seed=seed).steps(0, 200) for seed in (0, 1))
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[:100], first[100:])
    for epoch in (first[:100].ravel(), first[100:].ravel()):
        assert abs(np.corrcoef(epoch, np.arange(1000))[0, 1]) < 0.1
        assert abs(np.corrcoef(epoch[1:], epoch[:-1])[0, 1]) < 0.1


def test_a_corpus_too_small_for_the_batch_is_refused():
    with pytest.raises(ValueError, match="has 3 training sequences, fewer than a batch of 4"):
        Order(sequences=3, batch=4, seed=0)


def steps(batches, start: int, count: int) -> np.ndarray:
    chunk = batches.chunk(start, count)
    data = jax.tree.map(jax.numpy.asarray, batches.data)
    at = jax.jit(batches.reader.at)
    return np.stack([at(data, item) for item in np.asarray(chunk)])


def test_packed_windows_predict_every_token_once(corpus: Corpus):
    batches = training_batches(corpus, context=16, batch=4, seed=0)
    windows = batches.order.sequences
    epoch = steps(batches, 0, windows // 4).reshape(-1, 17)
    firsts = {tuple(row) for row in epoch}
    tokens = corpus.train.tokens
    expected = [tuple(tokens[i * 16 : i * 16 + 17].tolist()) for i in range(windows)]
    assert firsts <= set(expected)
    assert len(epoch) >= windows - 3


def test_streamed_batches_equal_resident_ones_also_after_a_jump(corpus: Corpus):
    resident = training_batches(corpus, context=16, batch=8, seed=3)
    streamed = training_batches(corpus, context=16, batch=8, seed=3, resident_up_to=0)
    assert isinstance(resident, Resident)
    assert isinstance(streamed, Streamed)
    for start, count in ((0, 3), (3, 2), (40, 4), (5, 1)):
        np.testing.assert_array_equal(steps(resident, start, count), steps(streamed, start, count))


def test_processes_read_their_own_rows_of_the_same_batches(corpus: Corpus):
    whole = training_batches(corpus, context=16, batch=8, seed=3, resident_up_to=0)
    assert isinstance(whole, Streamed)
    first = steps(whole, 0, 2)
    parts = [replace(whole, rows=slice(4 * process, 4 * process + 4)) for process in (0, 1)]
    together = np.concatenate([np.concatenate([steps(part, 0, 2), steps(part, 2, 3)]) for part in parts], axis=1)
    np.testing.assert_array_equal(together, np.concatenate([first, steps(whole, 2, 3)]))  # which goes on where it was


def test_evaluation_pieces_cover_documents_without_crossing_them(corpus: Corpus):
    tokens, weights = pad_documents(corpus.held_out, 16)
    predicted = [row[1:][weight > 0] for row, weight in zip(tokens, weights, strict=True)]
    bos = [row for row in tokens if row[0] == 256]
    assert len(bos) == len(corpus.held_out.starts)
    assert sum(map(len, predicted)) == len(corpus.held_out.tokens) - len(corpus.held_out.starts)
    assert all((row != 256).all() for row in predicted)


def test_evaluation_pieces_overlap_by_one_token_and_are_padded():
    documents = Tokens(np.arange(1, 8, dtype=np.uint16), np.array([0, 5, 5]))  # the second one is empty
    tokens, weights = pad_documents(documents, 3)
    assert tokens.tolist() == [[1, 2, 3, 4], [4, 5, 0, 0], [0, 0, 0, 0], [6, 7, 0, 0]]
    assert weights.tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 0, 0]]


def test_evaluation_has_the_asked_number_of_batches_and_pads_the_last(corpus: Corpus):
    few = evaluation_batches(corpus, context=16, batch=4, batches=2)
    assert few.tokens.shape == (2, 4, 17)
    assert few.weights.shape == (2, 4, 16)
    everything = evaluation_batches(corpus, context=16, batch=4, batches=10_000)
    _, weights = pad_documents(corpus.held_out, 16)
    assert everything.weights.sum() == weights.sum()
    assert len(everything.tokens) == -(-len(weights) // 4)


def test_synthetic_text_has_the_entropy_it_says():
    language = Synthetic(vocabulary=8, context=512, batch=64)
    tokens = steps(language, 0, 1)[0]
    surprise = -language.log_probabilities[tokens[:, :-1], tokens[:, 1:]]
    assert surprise.mean() == pytest.approx(language.entropy, rel=0.02)
    assert 0 < language.entropy < np.log(8)
    often = np.bincount(tokens.ravel(), minlength=8) / tokens.size
    np.testing.assert_allclose(often, language.stationary, atol=0.02)


def test_synthetic_text_depends_on_seed_and_step_and_never_repeats():
    first, second = Synthetic(seed=0), Synthetic(seed=1)
    a, b = steps(first, 0, 3), steps(second, 0, 3)
    np.testing.assert_array_equal(steps(first, 2, 1)[0], a[2])
    assert not np.array_equal(a, b)
    assert not np.array_equal(a[0], a[1])
    assert not np.array_equal(first.held_out(1).tokens[0], a[0])
    np.testing.assert_array_equal(first.held_out(2).tokens, second.held_out(2).tokens)


def test_flat_language_has_the_entropy_of_a_uniform_distribution():
    assert Synthetic(vocabulary=16, sharpness=0.0).entropy == pytest.approx(np.log(16))
    with pytest.raises(ValueError, match="vocabulary is 0"):
        Synthetic(vocabulary=0)
    with pytest.raises(ValueError, match="vocabulary is 32101: expected at most 8192"):
        Synthetic(vocabulary=32101)


def test_how_often_tokens_occur_does_not_change_from_token_to_token():
    language = Synthetic(vocabulary=512)
    assert language.stationary.sum() == pytest.approx(1)
    following = language.stationary @ np.exp(language.log_probabilities)
    np.testing.assert_allclose(following, language.stationary, rtol=1e-10)
    nearly_fixed = Synthetic(vocabulary=64, sharpness=30.0, language=3)
    assert all(np.isfinite(x).all() for x in nearly_fixed.data)


def test_a_single_file_has_text_to_train_on_and_to_evaluate_on(tmp_path: Path):
    (tmp_path / "one.txt").write_bytes(b"all in one file\n" * 20_000)
    corpus = prepare(Text((str(tmp_path / "one.txt"),)), Bytes(), cache=tmp_path)
    assert len(corpus.held_out.tokens) > 10_000
    assert len(corpus.train.tokens) > 100_000
    assert evaluation_batches(corpus, context=4, batch=1, batches=1).weights.all()


def test_too_little_text_is_refused(tmp_path: Path):
    (tmp_path / "one.txt").write_bytes(b"a single document")
    corpus = prepare(Text((str(tmp_path / "one.txt"),)), Bytes(), cache=tmp_path)
    with pytest.raises(ValueError, match="has 0 training sequences, fewer than a batch of 2"):
        training_batches(corpus, context=4, batch=2, seed=0)
    with pytest.raises(ValueError, match="no held-out text"):
        evaluation_batches(replace(corpus, held_out=corpus.train), context=4, batch=1, batches=1)
