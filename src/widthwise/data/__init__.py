"""Data: sources of text, tokenizers, the tokenized corpus, and the batches for training and evaluation."""

from widthwise.data.batches import Batches as Batches
from widthwise.data.batches import Evaluation as Evaluation
from widthwise.data.batches import Reader as Reader
from widthwise.data.batches import Resident as Resident
from widthwise.data.batches import Streamed as Streamed
from widthwise.data.batches import evaluation_batches as evaluation_batches
from widthwise.data.batches import training_batches as training_batches
from widthwise.data.corpus import Corpus as Corpus
from widthwise.data.corpus import open_corpus as open_corpus
from widthwise.data.corpus import prepare as prepare
from widthwise.data.order import Order as Order
from widthwise.data.sources import C4 as C4
from widthwise.data.sources import Source as Source
from widthwise.data.sources import Stdlib as Stdlib
from widthwise.data.sources import Text as Text
from widthwise.data.synthetic import Synthetic as Synthetic
from widthwise.data.tokenizers import Bytes as Bytes
from widthwise.data.tokenizers import SentencePiece as SentencePiece
from widthwise.data.tokenizers import Tokenizer as Tokenizer
from widthwise.data.tokenizers import train_sentencepiece as train_sentencepiece
