"""Which chat format a file was made for, where it has no template that says so.

Its tokens tell most: nobody adds `<|start_header_id|>` to a vocabulary to use it for nothing. Files that are older than
templates have only their name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from tinyllm_engine.gguf_header import text_of
from tinyllm_engine.tokenizer import Tokenizer

# Format and the tokens that mean it, all of them; the first that fits counts.
_TOKENS = (
    ("gpt-oss", ("<|start|>", "<|channel|>", "<|message|>")),
    ("phi4", ("<|im_start|>", "<|im_sep|>", "<|im_end|>")),
    ("kimi-k2", ("<|im_user|>", "<|im_middle|>", "<|im_end|>")),
    ("smolvlm", ("<|im_start|>", "<end_of_utterance>")),
    ("chatml", ("<|im_start|>", "<|im_end|>")),
    ("llama3", ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    ("llama4", ("<|header_start|>", "<|header_end|>", "<|eot|>")),
    ("gemma4", ("<|turn>", "<turn|>")),
    ("gemma", ("<start_of_turn>", "<end_of_turn>")),
    ("command-r", ("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>")),
    ("granite", ("<|start_of_role|>", "<|end_of_role|>")),
    ("chatglm4", ("[gMASK]", "<sop>", "<|assistant|>")),
    ("chatglm3", ("[gMASK]", "sop", "<|assistant|>")),
    ("deepseek3", ("<｜User｜>", "<｜Assistant｜>")),
    ("hunyuan-dense", ("<｜hy_User｜>", "<｜hy_Assistant｜>")),
    ("hunyuan-moe", ("<|startoftext|>", "<|extra_0|>", "<|extra_4|>")),
    ("mistral-v7", ("[SYSTEM_PROMPT]", "[INST]")),
    ("mistral-v3", ("[INST]", "[/INST]")),
    ("phi3", ("<|user|>", "<|assistant|>", "<|end|>")),
    ("exaone-moe", ("<|user|>", "<|assistant|>", "<|endofturn|>")),
    ("exaone4", ("[|assistant|]", "[|endofturn|]", "[|tool|]")),
    ("exaone3", ("[|assistant|]", "[|endofturn|]")),
    ("seed_oss", ("<seed:bos>", "<seed:eos>")),
    ("megrez", ("<|role_start|>", "<|role_end|>", "<|turn_end|>")),
    ("bailing2", ("<role>", "</role>", "<|role_end|>")),
    ("bailing", ("<role>", "</role>")),
    ("solar-open", ("<|begin|>", "<|content|>", "<|end|>")),
    ("dots1", ("<|userprompt|>", "<|endofuserprompt|>")),
    ("gigachat", ("<|role_sep|>", "<|message_sep|>")),
    ("minicpm", ("<用户>", "<AI>")),
    ("zephyr", ("<|user|>", "<|assistant|>")),
    ("openchat", ("<|end_of_turn|>",)),
    ("deepseek", ("<|EOT|>",)),
)

# For families that share the tokens of another, or have none: `general.architecture` -> format.
_ARCHITECTURES = {
    "deepseek2": "deepseek2",
    "grok": "grok-2",
    "orion": "orion",
    "rwkv6": "rwkv-world",
    "rwkv7": "rwkv-world",
}

# Words in the name of the model or of the file, in lower case.
_NAMES = (
    ("vicuna", r"vicuna|wizardlm"),
    ("zephyr", r"zephyr|tinyllama.*chat"),
    ("openchat", r"openchat|starling"),
    ("alpaca", r"alpaca"),
    ("monarch", r"monarch"),
    ("mistral-v1", r"mi[sx]tral.*instruct"),
    ("llama2", r"llama[-_ ]?v?2.*chat|codellama.*instruct"),
)


def implied_format(metadata: Mapping[str, Any], tokenizer: Tokenizer, path: str = "") -> tuple[str, str] | None:
    """Name of the format and what implies it, in words; None where nothing does."""
    name = _by_tokens(tokenizer)
    if name is not None:
        return _variant(name, metadata), "tokens imply"
    architecture = metadata.get("general.architecture")
    if isinstance(architecture, str) and architecture in _ARCHITECTURES:
        return _ARCHITECTURES[architecture], "architecture implies"
    named = [metadata.get(key) for key in ("general.name", "general.basename", "general.finetune")]
    words = " ".join(str(word).lower() for word in (*named, PurePath(path).name) if isinstance(word, str))
    name = next((name for name, pattern in _NAMES if re.search(pattern, words)), None)
    return None if name is None else (name, "name implies")


def _by_tokens(tokenizer: Tokenizer) -> str | None:
    return next(
        (name for name, texts in _TOKENS if all(tokenizer.token_id(text) is not None for text in texts)),
        None,
    )


def _variant(name: str, metadata: Mapping[str, Any]) -> str:
    """The same tokens stand without spaces between them where Mistral's vocabulary is byte-level."""
    if name in ("mistral-v3", "mistral-v7") and text_of(metadata, "tokenizer.ggml.pre") == "tekken":
        return f"{name}-tekken"
    if name == "zephyr" and text_of(metadata, "tokenizer.ggml.pre") == "falcon3":
        return "falcon3"
    if name == "zephyr" and text_of(metadata, "general.architecture") == "chatglm":
        return "glmedge"
    return name
