"""WordPiece, Unigram, RWKV's and PLaMo's tokenizers on vocabularies small enough to know by heart."""

import struct

import numpy as np
import pytest
from support.tiny_vocabularies import USER_DEFINED, plamo, rwkv, unigram, word_piece
from tinyllm_engine.errors import TokenizerError
from tinyllm_engine.tokenizer import Tokenizer


def tokens(metadata, text, **options):
    tokenizer = Tokenizer.from_metadata(metadata)
    return [tokenizer.token_text(id) for id in tokenizer.encode(text, **{"add_bos": False, **options})]


class TestWordPiece:
    WORDS = word_piece("▁un", "▁unaffable", "aff", "able", "▁a", "▁e", "▁,", "▁漢", "▁字", "b")

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("unaffable", ["▁unaffable"]),
            ("unaffaff  able", ["▁un", "aff", "aff", "[UNK]"]),
            ("a,a", ["▁a", "▁,", "▁a"]),
            ("漢字", ["▁漢", "▁字"]),
            ("É\u0301\u200b", ["▁e"]),
            ("unx", ["[UNK]"]),
            ("\n\t ", []),
            ("", []),
        ],
    )
    def test_the_longest_piece_from_the_left(self, text, expected):
        assert tokens(self.WORDS, text) == expected

    def test_case_and_accents_may_count(self):
        metadata = self.WORDS | {"tokenizer.ggml.normalizer.lowercase": False}
        assert tokens(metadata, "É e") == ["[UNK]", "▁e"]
        assert tokens(metadata | {"tokenizer.ggml.normalizer.strip_accents": True}, "é") == ["▁e"]

    def test_a_text_begins_with_cls(self):
        assert tokens(self.WORDS, "a", add_bos=None) == ["[CLS]", "▁a"]

    def test_it_comes_back_without_spaces_before_punctuation(self):
        tokenizer = Tokenizer.from_metadata(self.WORDS)
        assert tokenizer.decode([tokenizer.token_id("▁a"), tokenizer.token_id("▁,")]) == " a,"


class TestUnigram:
    PIECES = {"▁": -2.0, "a": -3.0, "b": -3.0, "ab": -4.0, "▁a": -3.5, "aba": -9.5, "c": -1.0, "bc": -4.0}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("ab", ["ab"]),
            ("aba", ["ab", "a"]),
            ("abc", ["ab", "c"]),  # -5 beats a + bc = -7
            ("xyc", ["<unk>", "c"]),
            ("x c", ["<unk>", "▁", "c"]),
            ("", []),
        ],
    )
    def test_the_likeliest_way_to_spell_a_text(self, text, expected):
        assert tokens(unigram(self.PIECES), text) == expected

    def test_of_equal_ones_the_longer_last_token(self):
        assert tokens(unigram({"a": -1.0, "b": -1.0, "ab": -2.0}), "ab") == ["ab"]
        assert tokens(unigram({"a": -1.0, "bc": -2.0, "ab": -2.0, "c": -1.0}), "abc") == ["a", "bc"]

    @pytest.mark.parametrize(
        ("keys", "expected"),
        [
            ({}, ["▁", "▁a", "▁", "▁", "b", "▁"]),
            ({"add_space_prefix": True}, ["▁", "▁", "▁a", "▁", "▁", "b", "▁"]),
            ({"remove_extra_whitespaces": True}, ["▁a", "▁", "b"]),
        ],
    )
    def test_spaces(self, keys, expected):
        assert tokens(unigram(self.PIECES, **keys), "  a  b ") == expected

    def test_user_defined_tokens_are_free_and_kept_as_they_are(self):
        metadata = unigram(self.PIECES, {"[x]": USER_DEFINED}, precompiled_charsmap=char_map({"[": "("}))
        assert tokens(metadata, "a[x]b") == ["a", "[x]", "b"]

    def test_characters_are_replaced_first_the_longest(self):
        replaced = char_map({"A": "a", "A\u0301": "b", "ﬀ": "cc", "x": ""})
        metadata = unigram(self.PIECES, precompiled_charsmap=replaced)
        assert tokens(metadata, "AA\u0301xﬀ") == ["ab", "c", "c"]
        assert tokens(metadata, "éx") == ["<unk>"]

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (np.array([1, 2, 3], np.uint8), "expected entries that fit into 3 bytes"),
            (np.array([5, 0, 0, 0] + [0] * 9, np.uint8), "found 5 bytes of entries"),
            (np.array([8, 0, 0, 0] + [0] * 8, np.uint8), "found 8 bytes of entries"),
            (np.array([4, 0, 0, 0] + [0] * 4 + [65], np.uint8), "replacements that end with a zero"),
            (np.array([1.0], np.float32), "expected an array of bytes, found an array of float32"),
            ("x", "expected an array of bytes, found a string"),
        ],
    )
    def test_a_map_that_cannot_be_read(self, data, said):
        with pytest.raises(TokenizerError, match=f"tokenizer.ggml.precompiled_charsmap: .*{said}"):
            Tokenizer.from_metadata(unigram(self.PIECES, precompiled_charsmap=data))

    def test_a_map_that_leads_nowhere_or_back_ends(self):
        random = np.random.default_rng(3)
        for _ in range(50):
            entries = random.integers(0, 1 << 32, 64, np.uint32)
            data = struct.pack("<I", 256) + entries.tobytes() + b"abc\0"
            metadata = unigram(self.PIECES, precompiled_charsmap=np.frombuffer(data, np.uint8))
            tokens(metadata, "abc \x01\x02 é" + "".join(map(chr, range(1, 300))))


def char_map(replacements):
    """A map that the reader can read: a trie whose nodes lie 256 entries apart."""
    texts, starts = b"", {}
    for text, replacement in replacements.items():
        starts[text.encode()] = len(texts)
        texts += replacement.encode() + b"\0"
    prefixes = sorted({key[:length] for key in starts for length in range(len(key) + 1)})
    bases = {prefix: 256 * (number + 1) for number, prefix in enumerate(prefixes)}
    entries = np.zeros(256 * (len(prefixes) + 1), np.uint32)

    def set_base(index, base):
        entries[index] |= base << 10

    set_base(0, bases[b""])
    for prefix in prefixes[1:]:
        index = bases[prefix[:-1]] ^ prefix[-1]
        entries[index] |= prefix[-1]
        set_base(index, bases[prefix] ^ index)
        if prefix in starts:
            entries[index] |= 1 << 8
            entries[bases[prefix]] = 1 << 31 | starts[prefix]
    data = struct.pack("<I", entries.nbytes) + entries.tobytes() + texts
    return np.frombuffer(data, np.uint8)


class TestRwkv:
    TOKENS = rwkv("<s>", "a", "ab", "abcd", r"\n", r"\xe6\xbc", r"\xa2", r"\\", "é", unknown_token_id=0)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("ababcd", ["ab", "abcd"]),
            ("abc", ["ab", "<s>"]),
            ("\n\\é漢", [r"\n", r"\\", "é", r"\xe6\xbc", r"\xa2"]),
            ("", []),
        ],
    )
    def test_the_longest_token_from_the_left(self, text, expected):
        assert tokens(self.TOKENS, text) == expected

    def test_tokens_come_back_as_bytes(self):
        tokenizer = Tokenizer.from_metadata(self.TOKENS)
        assert tokenizer.decode(tokenizer.encode("ab\n漢\\")) == "ab\n漢\\"

    def test_bytes_that_begin_no_token_are_left_out_where_none_is_unknown(self):
        assert tokens(rwkv("a", "b"), "axb") == ["a", "b"]


class TestPlamo:
    @pytest.mark.parametrize(
        ("pieces", "text", "expected"),
        [
            ({"a": -1.0, "b": -1.0, "ab": -3.0}, "ab", ["a", "b"]),
            ({"a": -1.0, "b": -1.0, "ab": -2.0}, "ab", ["ab"]),  # of equal ones the longer
            ({"a": -1.0}, "aé", ["a", "<0xC3>", "<0xA9>"]),
            ({"a": -1.0}, "\ufeffa", ["a"]),
            ({"a": float("-inf"), "b": -3000.0}, "ab", ["<0x61>", "<0x62>"]),
            ({}, "", []),
        ],
    )
    def test_the_highest_sum(self, pieces, text, expected):
        assert tokens(plamo(pieces), text) == expected

    def test_spaces_are_spelled_as_they_are(self):
        tokenizer = Tokenizer.from_metadata(plamo({" a": -1.0, "▁": -1.0}))
        assert tokenizer.decode(tokenizer.encode(" a▁ é", add_bos=False)) == " a▁ é"
