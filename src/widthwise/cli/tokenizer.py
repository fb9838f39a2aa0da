"""`widthwise tokenizer`: train a SentencePiece model on text of one's own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from widthwise.cli.arguments import count
from widthwise.cli.status_line import StatusLine
from widthwise.data import Text, train_sentencepiece


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """Train a SentencePiece model, for `widthwise train --tokenizer`."""

    paths: tuple[str, ...]
    """Files, folders or patterns: .txt, .jsonl, plain or compressed."""
    out: Path
    """The model file to write."""
    vocabulary: Annotated[int, count("N", least=2)] = 32000
    """The number of pieces; a beginning-of-sequence token comes on top."""

    def run(self) -> int:
        """Train and write the model."""
        if self.out.exists():
            raise ValueError(f"{str(self.out)!r} exists already: name another file or delete it")
        documents = list(Text(self.paths).documents())
        megabytes = sum(map(len, documents)) / 1e6
        StatusLine().say(f"training on {len(documents):,} documents, {megabytes:.1f} MB ...")
        trained = train_sentencepiece(documents, self.out, vocabulary=self.vocabulary)
        print(f"{self.out}: {trained.vocabulary:,} tokens with BOS")
        return 0
