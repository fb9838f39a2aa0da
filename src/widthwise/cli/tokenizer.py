"""`widthwise tokenizer`: train a SentencePiece model on your own text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from widthwise.cli.arguments import count
from widthwise.cli.paths import check_file
from widthwise.cli.running import StatusLine
from widthwise.data import Text, train_sentencepiece


@dataclass(frozen=True, kw_only=True)
class TokenizerCommand:
    """Train a SentencePiece model, for `widthwise train --tokenizer`."""

    paths: tuple[str, ...]
    """Files, folders or patterns: .txt, .jsonl, plain or compressed."""
    out: Path
    """The model file to write."""
    vocabulary: Annotated[int, count("N", least=2)] = 32000
    """The number of pieces, not counting the beginning-of-sequence token."""

    def run(self) -> int:
        """Train and write the model."""
        if self.out.exists():
            raise ValueError(f"{str(self.out)!r} exists: name another file or delete it")
        check_file(self.out)
        documents = list(Text(self.paths).documents())
        megabytes = sum(map(len, documents)) / 1e6
        StatusLine().say(f"training on {len(documents):,} documents, {megabytes:.1f} MB ...")
        trained = train_sentencepiece(documents, self.out, vocabulary=self.vocabulary)
        print(f"{self.out}: {trained.vocabulary:,} tokens, including BOS")
        return 0
