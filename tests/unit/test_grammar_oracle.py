"""Grammars against llama.cpp's own: along random answers the same tokens may come next."""

from codecs import getincrementaldecoder

import numpy as np
import pytest
from support import tiny_model
from support.llamacpp import WITHOUT_LLAMACPP, LlamaCpp, oracle_python
from tinyllm_engine.grammar import Grammar, json_schema_to_gbnf
from tinyllm_engine.model import Model

PYTHON = oracle_python()
pytestmark = pytest.mark.skipif(PYTHON is None, reason=WITHOUT_LLAMACPP)
SEEDS, LENGTH = 6, 24  # walks, and tokens of one

GRAMMARS = [
    'root ::= "yes" | "no" | "ye" [a-z]*',
    'root ::= ("a" | "b" [0-9]){2,4} "."',
    'root ::= sum\nsum ::= term (op term)*\nterm ::= [0-9]+ | "(" sum ")"\nop ::= [-+*/]',
    'root ::= "[" (root ("," root)*)? "]"',
    'root ::= ([^a-z\\\\"] | "\\\\" ["\\\\])* "é" [à-ÿ🙂日]+',
    "root ::= . [α-ω]? .*",
    'root ::= item{3,}\nitem ::= "- " [^\\n]+ "\\n"',
    json_schema_to_gbnf("{}"),
    json_schema_to_gbnf('{"type": "array", "items": {"enum": ["a", 1, null]}, "minItems": 1}'),
    json_schema_to_gbnf(
        '{"type": "object", "properties": {"n": {"type": "number"}, "s": {"type": "string", "maxLength": 3}}, '
        '"required": ["n"], "additionalProperties": false}'
    ),
]


@pytest.fixture(scope="module")
def oracle():
    with LlamaCpp(PYTHON) as oracle:
        yield oracle


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A token for each byte, so that characters come in pieces."""
    return Model.open(tiny_model.write(tmp_path_factory.mktemp("vocabulary") / "bytes.gguf"))


def can_be_text(data):
    """Whether it is UTF-8, or the beginning of some."""
    try:
        getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("text", GRAMMARS)
def test_the_same_tokens_may_come_next(text, oracle, model):
    """llama.cpp alone lets through bytes of which no text can come, and control tokens for the text of their names."""
    grammar, tokenizer = Grammar(text, model.tokenizer), model.tokenizer

    def is_sound(said, id):
        return id in tokenizer.eog_ids or (not tokenizer.is_marker(id) and can_be_text(said + tokenizer.piece(id)))

    for walk in oracle.walks(model.path, text, SEEDS, LENGTH):
        at, said = grammar.constraint(), b""
        for allowed, taken in walk:
            sound = [id for id in allowed if is_sound(said, id)]
            assert np.flatnonzero(at.mask()).tolist() == sound
            if taken not in sound:
                break
            at.accept(taken)
            said += tokenizer.piece(taken)
