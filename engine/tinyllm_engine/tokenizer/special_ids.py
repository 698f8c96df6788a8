"""Which tokens begin and end what: ids from the metadata, and texts that mean the same in every vocabulary.

Files are often silent, or wrong, about the tokens that end a turn. Like llama.cpp, this goes by their texts too.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyllm_engine.tokenizer.fields import Fields
from tinyllm_engine.tokenizer.vocab import TokenType, Vocabulary

# role -> its keys; the last one that a file has counts
_KEYS = {
    "bos": ("bos_token_id",),
    "eos": ("eos_token_id",),
    "eot": ("eot_token_id",),
    "eom": ("eom_token_id",),
    "unk": ("unknown_token_id",),
    "sep": ("seperator_token_id",),
    "pad": ("padding_token_id",),
    "mask": ("mask_token_id",),
    "fim_pre": ("fim_pre_token_id", "prefix_token_id"),
    "fim_suf": ("fim_suf_token_id", "suffix_token_id"),
    "fim_mid": ("fim_mid_token_id", "middle_token_id"),
    "fim_pad": ("fim_pad_token_id",),
    "fim_rep": ("fim_rep_token_id",),
    "fim_sep": ("fim_sep_token_id",),
}

# role -> texts that have it where the file names none; the first that the vocabulary has
_TEXTS = {
    "eot": (
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>"),
        *("_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"),
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>"),
        *("<|code_prefix|>", "<|prefix|>"),
    ),
    "fim_suf": (
        *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>"),
        *("<|code_suffix|>", "<|suffix|>"),
    ),
    "fim_mid": (
        *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>"),
        *("<|code_middle|>", "<|middle|>"),
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}

_END_TEXTS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"),
    *("<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>"),
    *("<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["),
)
_END_ROLES = ("fim_pad", "fim_rep", "fim_sep", "eos", "eot", "eom")

# gpt-oss marks its channels with these; the text between them is for the reader, so they are not hidden.
_CHANNEL_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


@dataclass(frozen=True)
class SpecialIds:
    """roles: "bos", "eos", "eot", ... -> id, as far as the file or the texts say.

    end_of_generation: any of these ends an answer
    """

    roles: dict[str, int]
    end_of_generation: frozenset[int]


def assign_special_ids(
    fields: Fields, vocabulary: Vocabulary, defaults: dict[str, int], notes: list[str]
) -> SpecialIds:
    """Finds the ids and sets the types of `vocabulary` that follow from them. What the file has wrong goes to notes."""
    roles = {role: id for role, id in defaults.items() if id < len(vocabulary)}
    for role, keys in _KEYS.items():
        for key in keys:
            id = fields.integer(f"tokenizer.ggml.{key}")
            if id is not None and 0 <= id < len(vocabulary):
                roles[role] = id
            elif id is not None:
                notes.append(f"tokenizer.ggml.{key} is {id}, but there are {len(vocabulary)} tokens: ignored")
    for role, texts in _TEXTS.items():
        if role not in roles and (id := _first(vocabulary, texts)) is not None:
            roles[role] = id
            vocabulary.types[id] = TokenType.CONTROL
    return SpecialIds(roles, _end_of_generation(vocabulary, roles))


def _first(vocabulary: Vocabulary, texts: tuple[str, ...]) -> int | None:
    return next((vocabulary.ids[text] for text in texts if text in vocabulary.ids), None)


def _end_of_generation(vocabulary: Vocabulary, roles: dict[str, int]) -> frozenset[int]:
    ids, types = vocabulary.ids, vocabulary.types
    by_text = {ids[text] for text in _END_TEXTS if text in ids}
    for id in by_text:
        types[id] = TokenType.CONTROL
    for text in _CHANNEL_TEXTS:
        if text in ids:
            types[ids[text]] = TokenType.USER_DEFINED

    ends = by_text | {roles[role] for role in _END_ROLES if role in roles}
    texts = {vocabulary.texts[id] for id in ends}
    # Where an answer has several channels, <|end|> ends but one of them.
    if "<|end|>" in texts and texts & {"<|call|>", "<|calls|>"} and texts & {"<|return|>", "<|flush|>"}:
        ends.remove(ids["<|end|>"])
        types[ids["<|end|>"]] = TokenType.USER_DEFINED
    # gemma4 and plamo have an end of their own, and </s> as a word like any other.
    if "</s>" in texts and texts & {"<|tool_response>", "<|plamo:eos|>"}:
        ends.remove(ids["</s>"])
        types[ids["</s>"]] = TokenType.NORMAL
    return frozenset(ends)
