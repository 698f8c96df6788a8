"""`tinyllm-chat [MODEL]`: opens the screen, or answers one prompt on standard output."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from tinyllm_chat.chat.drafts import DraftKeeper
from tinyllm_chat.chat.errors import ChatError
from tinyllm_chat.chat.leftovers import sweep
from tinyllm_chat.chat.library import ChatLibrary
from tinyllm_chat.chat.local_backend import LocalBackend
from tinyllm_chat.chat.logs import start_logging
from tinyllm_chat.chat.opening import ModelOptions
from tinyllm_chat.chat.paths import Paths
from tinyllm_chat.chat.places import RecentModels
from tinyllm_chat.chat.presets import load_presets
from tinyllm_chat.chat.prompt_history import PromptHistory
from tinyllm_chat.chat.session import Session
from tinyllm_chat.chat.settings import LoadResult, load_settings
from tinyllm_chat.chat.signals import ending_with, exit_at_once
from tinyllm_chat.chat.transcript import TranscriptStore
from tinyllm_chat.cli.failure import Failure, UsageFailure
from tinyllm_chat.cli.input import read_text
from tinyllm_chat.cli.text import one_line, put_out
from tinyllm_chat.cli.verbs import VERBS


def run(
    *,
    positional: str | None,
    model: str | None,
    prompt: str | None,
    file: str | None,
    raw: bool,
    continue_last: bool,
    resume: str | None,
    paths: bool,
    keys: bool = False,
    grammar: str | None = None,
    grammar_file: str | None = None,
    json_schema: str | None = None,
    json_schema_file: str | None = None,
    **settings: Any,
) -> None:
    """Does what the command line asks for. `settings`: those that were typed; the others are None."""
    places = Paths.default()
    if paths:
        print_paths(places)
        return
    if keys:
        print_keys()
        return
    _refuse_contradictions(positional, model, continue_last, resume)
    continued = continue_last or resume is not None
    wanted = _grammar(grammar, grammar_file, json_schema, json_schema_file)
    plain = settings["plain"] and prompt is None and file is None
    text = None if plain else _prompt_text(prompt, file)
    if raw and (text is None or continued):
        raise UsageFailure("--raw needs a prompt, and no earlier chat")
    start_logging(places.log_file)
    sweep((places.config, places.transcripts, places.state, places.drafts))
    loaded = load_settings(settings, os.environ, places)
    plain = text is None and loaded.settings.value("plain")
    if text is None and not plain:
        _require_terminal()
    file_path = _model_file(positional or model, loaded, places, continued=continued, needed=text is not None)
    store = TranscriptStore(places.transcripts, places.exports)
    library = ChatLibrary(store, places.state)
    chat = _chat_id(store, library, continue_last, resume)
    kept = store if text is None or chat else None
    session = _session(loaded, kept, places.config_file, raw=raw, grammar=wanted)
    with ending_with(exit_at_once):
        try:
            if chat is not None:
                session.open_chat(chat)
                if settings["system_prompt"] is not None:
                    session.set_system_prompt(settings["system_prompt"])
            if text is not None:
                assert file_path is not None
                _answer_once(session, file_path, text, loaded.warnings)
                return
            if plain:
                _chat_plainly(session, file_path, loaded.warnings)
            else:
                _show_screen(session, file_path, places, loaded, library)
            if not _is_served() and (hint := resuming(session, positional or model, file_path)):
                click.echo(hint)
        finally:
            session.close()


def _refuse_contradictions(positional: str | None, model: str | None, continue_last: bool, resume: str | None) -> None:
    if positional in VERBS:
        raise UsageFailure(f"the verb comes first: tinyllm-chat {positional}; a file of that name is ./{positional}")
    if positional is not None and model is not None:
        raise UsageFailure(f"two models: {positional} and -m {model}")
    if continue_last and resume is not None:
        raise UsageFailure("--continue and --resume name two chats")


def resuming(session: Session, typed: str | None, opened: Path | None) -> str:
    """How to go on with this chat; empty where nothing was said or kept."""
    if session.transcript_path is None or session.conversation.leaf is None:
        return ""
    model = typed
    if session.model is not None and session.model.path != str(opened):
        model = session.model.path
    words = ["tinyllm-chat", *([model] if model else []), "--resume", session.transcript_path.stem]
    return f"Go on with this chat: {shlex.join(map(one_line, words))}"


def print_paths(places: Paths) -> None:
    for name, path in places.listed().items():
        put_out(f"{name:12}{path}")


def print_keys() -> None:
    from tinyllm_chat.tui.actions import ACTIONS
    from tinyllm_chat.tui.keymap import listing

    click.echo(listing(ACTIONS))


def _is_served() -> bool:
    """Textual draws for a browser: standard input and output are its pipes."""
    return "TEXTUAL_DRIVER" in os.environ


def _require_terminal() -> None:
    """Textual reads standard input and draws on standard error (on Windows on standard output)."""
    if _is_served():
        return
    for name in ("output", "input", "error"):
        stream = getattr(sys, {"output": "stdout", "input": "stdin", "error": "stderr"}[name])
        if stream is None or not stream.isatty():
            raise UsageFailure(
                f"standard {name} is no terminal to chat on, and there is no prompt: "
                "-p TEXT answers once and prints only the answer"
            )


def _prompt_text(prompt: str | None, file: str | None) -> str | None:
    """The text to answer: of -p, then of -f; where neither is given, what is piped in. None: none of them."""
    if prompt is None and file is None:
        piped = sys.stdin is not None and not sys.stdin.isatty() and not _is_served()
        text = _read_prompt("-") if piped else ""
        return text if text.strip() else None
    parts = [prompt] if prompt is not None else []
    if file is not None:
        parts.append(_read_prompt(file))
    text = "\n\n".join(parts)
    if not text.strip():
        raise UsageFailure("the prompt is empty")
    return text


def _grammar(grammar: str | None, grammar_file: str | None, schema: str | None, schema_file: str | None) -> str:
    """What answers must look like, in GBNF; empty: nothing is said. What is wrong with it is said at once."""
    given = [each for each in (grammar, grammar_file, schema, schema_file) if each is not None]
    if not given:
        return ""
    if len(given) > 1:
        raise UsageFailure("two grammars: give one of --grammar, --grammar-file, -j and -jf")
    from tinyllm_engine.grammar import json_schema_to_gbnf

    if schema is None and schema_file is None:
        return grammar if grammar is not None else read_text(given[0])
    return json_schema_to_gbnf(schema if schema is not None else read_text(given[0]))


def _read_prompt(file: str) -> str:
    return read_text(file).removesuffix("\n")


def _model_file(typed: str | None, loaded: LoadResult, places: Paths, *, continued: bool, needed: bool) -> Path | None:
    """The model to open: the one typed, else that of the settings, else for a `continued` chat the one opened last.

    A wrong one in the settings is a warning, unless it is `needed`.
    """
    name = typed or loaded.settings.value("model")
    if not name and continued and (recent := RecentModels(places).paths()):
        return recent[0]
    if not name:
        if needed:
            raise UsageFailure("no model is named; for example: tinyllm-chat smollm2 -p TEXT")
        return None
    from tinyllm_chat.cli.models import model_path

    try:
        return model_path(name, places)
    except ChatError as error:
        if needed or typed:
            raise
        loaded.warnings.append(f"model of the settings ({loaded.settings.origin('model')}): {error}")
        return None


def _chat_id(store: TranscriptStore, library: ChatLibrary, continue_last: bool, resume: str | None) -> str | None:
    if resume is not None:
        from tinyllm_chat.cli.chats import chat_named

        return chat_named(library, resume)
    if not continue_last:
        return None
    latest = store.latest()
    if latest is None:
        raise Failure(f"there is no chat to continue in {store.folder}")
    return latest


def _session(loaded: LoadResult, store: TranscriptStore | None, config: Path, *, raw: bool, grammar: str) -> Session:
    def options() -> ModelOptions:
        value = session.settings.value
        return ModelOptions(
            context_length=value("context_length"),
            cache_type_k=value("cache_type_k"),
            cache_type_v=value("cache_type_v"),
            threads=value("threads"),
            chat_template="none" if raw else value("chat_template"),
            grammar=grammar,
            lora=value("lora"),
            kept_cache_bytes=value("keep_kv_max_mb") * 1_000_000 if value("keep_kv") else 0,
        )

    presets = load_presets(loaded.presets, str(config), loaded.warnings)
    session = Session(LocalBackend(options), store, loaded.settings, config, presets)
    return session


def _show_screen(session: Session, model: Path | None, places: Paths, loaded: LoadResult, library: ChatLibrary) -> None:
    from tinyllm_chat.cli.models import Models
    from tinyllm_chat.tui.app import run as show

    path = None if model is None else str(model)
    value = session.settings.value
    models = Models(places, ModelOptions(value("context_length"), value("cache_type_k"), value("cache_type_v")))
    history = PromptHistory(places.prompt_history)
    code = show(
        session,
        model=path,
        models=models,
        chats=library,
        warnings=[*loaded.warnings, *history.warnings],
        keys=loaded.keys,
        config_folder=places.config,
        history=history,
        drafts=DraftKeeper(places.drafts),
        log_file=places.log_file,
    )
    if code:
        raise click.exceptions.Exit(code)


def _chat_plainly(session: Session, model: Path | None, warnings: list[str]) -> None:
    from tinyllm_chat.cli.plain import run as chat

    chat(session, model, warnings)


def _answer_once(session: Session, model: Path, text: str, warnings: list[str]) -> None:
    from tinyllm_chat.cli.answer import answer, note

    for warning in warnings:
        note(warning)
    answer(session, model, text)
