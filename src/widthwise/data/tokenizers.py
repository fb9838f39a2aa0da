"""Tokenizers turn documents into tokens.

Every document starts with BOS, the last token of the vocabulary: 256 for bytes, 32000 for the T5 model.
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Tokenizer(Protocol):
    """The interface of a tokenizer."""

    @property
    def name(self) -> str:
        """The name to print."""
        ...

    @property
    def hash(self) -> str:
        """A hash; tokenizers with equal hashes produce equal tokens."""
        ...

    @property
    def vocabulary(self) -> int:
        """The number of tokens, including BOS."""
        ...

    def encode(self, document: bytes) -> np.ndarray:
        """Return the tokens of a document, BOS first."""
        ...


@dataclass(frozen=True)
class Bytes:
    """Bytes as tokens: 256 and BOS.

    >>> Bytes().encode(b"hi").tolist()
    [256, 104, 105]
    """

    name: str = "bytes"
    hash: str = "bytes-1"
    vocabulary: int = 257

    def encode(self, document: bytes) -> np.ndarray:
        """Return the bytes of a document, BOS first."""
        return np.concatenate([[np.uint16(256)], np.frombuffer(document, np.uint8)]).astype(np.uint16)


@dataclass(frozen=True)
class SentencePiece:
    """A SentencePiece model, such as T5's, with BOS as an additional last token."""

    path: Path
    _processor: Any = field(init=False, repr=False, compare=False)
    _bytes: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        processor = _sentencepiece().SentencePieceProcessor()
        try:
            serialized = Path(self.path).read_bytes()
            processor.LoadFromSerializedProto(serialized)
        except (OSError, RuntimeError) as error:
            raise ValueError(
                f"{str(self.path)!r} is not a SentencePiece model that can be read{_reason(error)}"
            ) from None
        object.__setattr__(self, "_processor", processor)
        object.__setattr__(self, "_bytes", serialized)

    @property
    def name(self) -> str:
        """The file's name."""
        return f"sentencepiece {Path(self.path).name}"

    @property
    def hash(self) -> str:
        """The hash of the model file."""
        return hashlib.sha256(self._bytes).hexdigest()

    @property
    def vocabulary(self) -> int:
        """The number of pieces, plus BOS."""
        return self._processor.vocab_size() + 1

    def encode(self, document: bytes) -> np.ndarray:
        """Return the pieces of a document, BOS first; bytes that are not UTF-8 are replaced."""
        pieces = self._processor.encode(document.decode("utf-8", errors="replace"))
        return np.array([self.vocabulary - 1, *pieces], np.uint32)


def train_sentencepiece(documents: "list[bytes]", path: Path, *, vocabulary: int) -> SentencePiece:
    """Train a SentencePiece model on documents and write it to a file, completely or not at all."""
    import io

    trained = io.BytesIO()
    if not any(document.strip() for document in documents):
        raise ValueError("there is no text to train a SentencePiece model on: the files are empty")
    sentences = (line for document in documents for line in document.decode("utf-8", "replace").splitlines() if line)
    try:
        _sentencepiece().SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=trained,
            vocab_size=vocabulary,
            bos_id=-1,
            eos_id=-1,
            byte_fallback=True,
            max_sentence_length=1 << 16,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"no SentencePiece model with {vocabulary} pieces{_reason(error)}") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(trained.getvalue())
    partial.replace(path)
    return SentencePiece(path)


def _reason(error: Exception) -> str:
    """Return what SentencePiece says, after a colon, without the condition in its code that did not hold.

    >>> _reason(RuntimeError("INTERNAL: src/trainer.cc(678) [a() == (b())] Vocabulary size too high (32000)."))
    ': Vocabulary size too high (32000).'
    >>> _reason(RuntimeError("INTERNAL: src/trainer.cc(446) [!sentences_.empty()]"))
    ''
    """
    said = re.sub(r"^\w+: (\S+\(\d+\) \[.*\] ?)?", "", str(error).strip().splitlines()[-1])
    return f": {said}" if said else ""


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise ValueError("SentencePiece is not installed: pip install 'widthwise[text]'") from None
    return sentencepiece
