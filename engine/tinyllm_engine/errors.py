"""Every error the engine raises on purpose. A message is one line: what, where, expected, found."""


class EngineError(Exception):
    """Base class; catching it catches whatever the engine refuses knowingly.

    >>> try:
    ...     Model.open("notes.txt")
    ... except EngineError as error:
    ...     print(error)
    notes.txt: expected a GGUF file (first bytes b'GGUF'), found b'Dear dia'
    """


class GGUFError(EngineError):
    """The file is not a well-formed GGUF: names the file, the field, what was expected and what was found."""


class UnsupportedModelError(EngineError):
    """The file is well formed, but it asks for something this engine does not have (architecture, type, tokenizer)."""


class ModelError(EngineError):
    """The file is well formed and supported, but its contents contradict each other (missing tensor, wrong shape)."""


class TokenizerError(EngineError):
    """The vocabulary in the file is unusable, or an id lies outside it."""


class TemplateError(EngineError):
    """The chat template cannot be parsed, raised its own error, or exceeded its limits."""


class SamplingError(EngineError, ValueError):
    """A sampling parameter lies outside its range."""


class GrammarError(EngineError, ValueError):
    """A grammar or JSON schema cannot be read, asks for what is not supported, or for what no token can give."""


class NonFiniteLogitsError(EngineError):
    """The model produced NaN or infinity where a score was due."""


class ContextFullError(EngineError):
    """The tokens do not fit into what is left of the context; nothing was evaluated."""


class SavedStateError(EngineError):
    """A saved sequence is damaged, of another model or another cache, or cannot be read: it is not used."""


class OtherStateError(SavedStateError):
    """A saved sequence that is sound, but of another model or another cache."""


class CancelledError(EngineError):
    """The caller cancelled a forward pass; complete rows stay in the cache."""


class OutOfMemoryError(EngineError):
    """The machine cannot give the memory that was asked for."""
