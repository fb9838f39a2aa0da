"""The data of a run: from its specification to batches, held-out batches and a fingerprint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widthwise.data import (
    C4,
    Batches,
    Bytes,
    Evaluation,
    SentencePiece,
    Source,
    Stdlib,
    Synthetic,
    Text,
    Tokenizer,
    evaluation_batches,
    prepare,
    training_batches,
)
from widthwise.data.corpus import PART, OnProgress
from widthwise.train.spec import Spec


@dataclass(frozen=True)
class Inputs:
    """The training and evaluation data of a run, and a fingerprint that identifies it."""

    batches: Batches
    evaluation: Evaluation
    fingerprint: dict[str, Any]


def load_inputs(spec: Spec, *, progress: OnProgress = lambda _: None) -> Inputs:
    """Open the data of a run, tokenizing it first if necessary."""
    if spec.data == "synthetic":
        vocabulary = vocabulary_of(spec)
        language = Synthetic(context=spec.context, batch=spec.batch, seed=spec.data_seed, vocabulary=vocabulary)
        fingerprint = {"source": "synthetic", "vocabulary": language.vocabulary, "language": language.language}
        return Inputs(language, language.held_out(spec.eval_batches), fingerprint)
    tokenizer = _tokenizer(spec)
    corpus = prepare(_source(spec), tokenizer, progress=progress)
    batches = training_batches(corpus, context=spec.context, batch=spec.batch, seed=spec.data_seed)
    evaluation = evaluation_batches(corpus, context=spec.context, batch=spec.batch, batches=spec.eval_batches)
    cut = {} if (part := corpus.manifest["part"]) == PART else {"part": part}  # little text is split differently
    return Inputs(batches, evaluation, {**corpus.manifest["source"], "tokenizer": tokenizer.hash, **cut})


def vocabulary_of(spec: Spec) -> int:
    """Return the vocabulary of a run's data without opening it; the model's own if that takes a tokenizer's file."""
    if spec.data == "synthetic":
        return spec.vocabulary or Synthetic.vocabulary
    if spec.tokenizer != "bytes" and spec.vocabulary is not None:
        return spec.vocabulary
    return _tokenizer(spec).vocabulary


def _tokenizer(spec: Spec) -> Tokenizer:
    return Bytes() if spec.tokenizer == "bytes" else SentencePiece(Path(spec.tokenizer))


def _source(spec: Spec) -> Source:
    if spec.data == "stdlib":
        return Stdlib()
    if spec.data == "c4" and not spec.paths:
        return C4()
    return Text(spec.paths, name=spec.data)
