"""Tokenizers, from nothing but the metadata of a file.

Read `tokenizer.py` first. A text is split at special tokens (`special.py`), what is between them is encoded by
byte-level BPE (`pretokenize.py`, `bpe.py`) or SentencePiece (`spm.py`), both on one loop (`merge.py`); some families
have others (`scheme.py` lists them all).
"""

from tinyllm_engine.tokenizer.stream import StreamDecoder
from tinyllm_engine.tokenizer.tokenizer import Tokenizer
from tinyllm_engine.tokenizer.vocab import TokenType

__all__ = ["StreamDecoder", "TokenType", "Tokenizer"]
