"""Which template a conversation is rendered with: the one that is asked for, the file's own, or what is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyllm_engine.chat_template.formats import format_names, format_source
from tinyllm_engine.chat_template.implied import implied_format
from tinyllm_engine.chat_template.limits import MAX_SOURCE
from tinyllm_engine.chat_template.template import KEY, ChatTemplate
from tinyllm_engine.errors import TemplateError
from tinyllm_engine.gguf_header import location, shown
from tinyllm_engine.tokenizer import Tokenizer

NONE = "none"  # asked for instead of a template: text is continued as it is


@dataclass(frozen=True, slots=True)
class TemplateChoice:
    """template: None where messages can only follow each other as text

    notes: why it is not simply the file's own
    """

    template: ChatTemplate | None
    notes: tuple[str, ...] = ()


def choose_template(
    metadata: Mapping[str, Any], tokenizer: Tokenizer, path: str = "", wanted: str = ""
) -> TemplateChoice:
    """The template for a file's chats.

    wanted: "" chooses; "none"; a name of the file's own (`tokenizer.chat_template.NAME`) or of `format_names`; or a
        file that holds a template, where there is no such name
    TemplateError for a wanted one that does not exist or does not compile. The file's own may be missing or broken:
    then the format that its tokens, its architecture or its name imply is used, and a note says so.
    """
    if wanted == NONE:
        return TemplateChoice(None)
    if wanted:
        return TemplateChoice(_wanted(metadata, tokenizer, path, wanted))
    try:
        own = ChatTemplate.from_metadata(metadata, tokenizer, path)
        if own is not None:
            own.prompt([{"role": "user", "content": "x"}])
            return TemplateChoice(own)
        reason = "the file has no chat template"
    except TemplateError as error:
        reason = f"the file's chat template is not used: {error}"
    implied = implied_format(metadata, tokenizer, path)
    if implied is None:
        return TemplateChoice(None, (f"{reason}: the model continues your text instead of answering it",))
    name, why = implied
    note = f"{reason}: {name} is used, which the file's {why}"
    return TemplateChoice(_known(name, tokenizer), (note,))


def _wanted(metadata: Mapping[str, Any], tokenizer: Tokenizer, path: str, wanted: str) -> ChatTemplate:
    key = f"{KEY}.{wanted}"
    if isinstance(own := metadata.get(key), str):
        return ChatTemplate(own, tokenizer, location(path), key)
    if wanted in format_names():
        return _known(wanted, tokenizer)
    return ChatTemplate(_read(wanted, metadata), tokenizer, location(wanted), "chat template")


def _known(name: str, tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate(format_source(name), tokenizer, key=f"chat template {name}")


def _read(path: str, metadata: Mapping[str, Any]) -> str:
    """The text of a file. TemplateError if there is none, or more than a template can be."""
    try:
        if Path(path).exists() and not Path(path).is_file():  # to open a pipe would wait for its other end
            raise TemplateError(f"chat template {shown(path)}: expected a file, found something that is not one")
        with Path(path).open("rb") as file:
            data = file.read(4 * MAX_SOURCE + 1)
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TemplateError(f"{path}: byte {error.start} is not UTF-8") from error
    except (OSError, ValueError) as error:
        own = sorted(key.removeprefix(f"{KEY}.") for key in metadata if key.startswith(f"{KEY}."))
        names = ", ".join([NONE, *own, *format_names()])
        raise TemplateError(
            f"chat template {shown(path)}: expected a file or one of {names}; found no such file"
        ) from error
