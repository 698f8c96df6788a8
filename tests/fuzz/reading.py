"""Everything that the program does with a model file, in order, until there is nothing more that it may."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tinyllm_engine import Model, Runner, SamplingParams, generate
from tinyllm_engine.errors import EngineError, GGUFError

T = TypeVar("T")
LONGEST_MESSAGE = 2000  # characters: the longest lists the architectures that there are
TEXT = "Hello,  world! 1234 <|im_start|>\n\tdon't café 你好 🙂 \ud83d \0 <s>"
MESSAGES = [
    {"role": "system", "content": "Be <|im_end|> brief."},
    {"role": "user", "content": TEXT.encode("utf-8", "replace").decode()},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "And </s> now?"},
]


def read_model(path: Path, context: int | None) -> str:
    """The furthest that the file goes: "opened", "weights", "runner" or "answered". Raises what is no refusal.

    A warning is none either: it would stand on the terminal. context: of the runner; None: the model's own
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return _read_model(path, context)


def _read_model(path: Path, context: int | None) -> str:
    try:
        model = Model.open(path)
    except GGUFError as error:
        return _checked(error) or "refused"
    _try(lambda: model.config)
    _try(lambda: (model.name, model.parameters, model.weight_bytes, model.file_type, model.other_kind))
    tokenizer = _try(lambda: model.tokenizer)
    if tokenizer is not None:
        _try(lambda: _use_tokenizer(tokenizer))
    template = _try(lambda: model.chat_template)
    if template is not None:
        for messages in (MESSAGES, MESSAGES[1:2]):
            _try(lambda messages=messages: template.render(messages, add_generation_prompt=True))
    _try(lambda: _inspected(path))
    if _try(lambda: model.weights) is None:
        return "opened"
    runner = _try(lambda: Runner(model, context_length=context, threads=1))
    if runner is None:
        return "weights"
    return _try(lambda: _answer(runner)) or "runner"


def _answer(runner: Runner) -> str:
    sequence = runner.sequence()
    ids = [0, runner.vocab_size - 1, 1 % runner.vocab_size, 0, 0]
    sequence.forward(ids[: runner.context_length], all_logits=True)
    sequence.truncate(0)
    parameters = SamplingParams(temperature=0.9, top_k=20, repeat_penalty=1.1)
    for _ in generate(sequence, ids[: runner.context_length], parameters, max_tokens=4):
        pass
    return "answered"


def _use_tokenizer(tokenizer: Any) -> None:
    for special in (False, True):
        tokenizer.encode(TEXT, parse_special=special)
    ids = list(range(min(tokenizer.vocab_size, 300)))
    tokenizer.decode(ids)
    stream = tokenizer.stream(())
    for id in ids:
        stream.feed(id)
    stream.flush()


def _inspected(path: Path) -> None:
    from tinyllm_chat.cli.inspect import inspect
    from tinyllm_engine.gguf import open_gguf

    with open_gguf(path) as file:
        inspect(file, None, ("f16", "f16"))


def _try(act: Callable[[], T]) -> T | None:
    """None where the engine refuses, as it should: with one line."""
    try:
        return act()
    except EngineError as error:
        _checked(error)
        return None


def _checked(error: EngineError) -> None:
    text = str(error)
    assert text.isprintable(), f"{type(error).__name__} is not one printable line: {text[:200]!r}"
    assert len(text) <= LONGEST_MESSAGE, f"{type(error).__name__} of {len(text)} characters"
