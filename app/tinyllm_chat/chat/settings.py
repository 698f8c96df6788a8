"""Settings: one table that says what there is, and frozen values that know where they come from."""

from __future__ import annotations

import contextlib
import difflib
import json
import logging
import math
import re
import reprlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.cache_types import CACHE_TYPES
from tinyllm_chat.chat.context_policy import POLICIES, STOP
from tinyllm_chat.chat.errors import SettingsError, reason_of
from tinyllm_chat.chat.files import read_file, write_atomically
from tinyllm_chat.chat.paths import Paths

# Where a value can come from, strongest first.
SESSION = "session"
PRESET = "preset"  # one that was chosen; what it says is stronger than what the program was started with
COMMAND_LINE = "command line"
ENVIRONMENT = "environment"
CONFIG = "config"
MODEL = "model"
BUILT_IN = "built-in"
ORIGINS = (SESSION, PRESET, COMMAND_LINE, ENVIRONMENT, CONFIG, MODEL, BUILT_IN)

ENVIRONMENT_PREFIX = "TINYLLM_"
KEYS_TABLE = "keys"  # of the config file; the screen, which knows what there is to do, understands it
PRESETS_TABLE = "presets"  # of the config file; see presets.py
CONFIG_LIMIT = 1 << 20  # bytes; a larger file is not a config file
_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. A number has a range, everything else has none."""

    name: str
    table: str  # of config.toml
    default: Any  # its type is the setting's type: int, float, str, bool, or tuple for a list of texts
    help: str
    range: tuple[float, float] | None = None  # lowest and highest, both allowed
    choices: tuple[str, ...] = ()
    step: float | None = None  # what one press of a key changes
    rare: bool = False  # seen among the sampling values only where it differs from the default

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.range is not None:
            kind = "a whole number" if isinstance(self.default, int) else "a number"
            return f"{kind} from {self.range[0]} to {self.range[1]}"
        return {bool: "true or false", tuple: "a list of texts"}.get(type(self.default), "a text")


_SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")


def _rare(
    name: str, default: Any, help: str, range: tuple[float, float] | None = None, step: float | None = None
) -> Setting:
    return Setting(name, "sampling", default, help, range, step=step, rare=True)


_SETTINGS = (
    Setting("model", "model", "", "Model to open when none is named: a path, or a name known to `tinyllm-chat pull`."),
    Setting("lora", "model", (), "LoRA adapters for it: FILE, or FILE:SCALE where 1 is as strong as it was trained."),
    Setting("context_length", "model", 0, "Tokens of context; 0: the model's own length.", (0, 2**31)),
    Setting("threads", "model", 0, "Threads that compute; 0: one for each processor core.", (0, 1024)),
    Setting("cache_type_k", "model", "f16", "Number format of cached keys.", choices=CACHE_TYPES),
    Setting("cache_type_v", "model", "f16", "Number format of cached values.", choices=CACHE_TYPES),
    Setting(
        "context_full",
        "model",
        STOP,
        "When the context is full: stop, leave the oldest turns out, shift them out as it writes, or summarize them.",
        choices=POLICIES,
    ),
    Setting("keep", "model", 0, "Turns that begin within so many tokens are never left out.", (0, 2**31)),
    Setting("keep_kv", "model", False, "Keep a chat's cache on disk, so that it need not be read again when reopened."),
    Setting("keep_kv_max_mb", "model", 500, "Megabytes that kept caches may take together.", (1, 1_000_000)),
    Setting("max_tokens", "model", 0, "Longest answer in tokens; 0: no limit but the context.", (0, 2**31)),
    Setting("chat_template", "model", "", "A known format (chatml, ...), a file, or none; empty: the model's own."),
    Setting(
        "think", "model", "auto", "Reasoning before the answer, of models that can.", choices=("auto", "on", "off")
    ),
    Setting("preset", "model", "", "Sampling values to start with: precise, balanced, creative, or one of your own."),
    Setting("stop", "model", (), "Texts that end an answer where one of them appears."),
    Setting("system_prompt", "model", "", "What the model is told before the conversation."),
    Setting("temperature", "sampling", 0.8, "Higher is more varied; 0: always the likeliest.", (0, 5), step=0.05),
    Setting("top_k", "sampling", 40, "Choose among the k likeliest tokens; 0: all.", (0, 2**31 - 1), step=5),
    Setting("top_p", "sampling", 0.95, "Choose among the likeliest that sum to p; 1: all.", (0, 1), step=0.01),
    Setting("min_p", "sampling", 0.05, "Drop tokens below p times the likeliest; 0: none.", (0, 1), step=0.01),
    Setting("typical_p", "sampling", 1.0, "Choose among the typical ones that sum to p; 1: all.", (0, 1), step=0.01),
    Setting("repeat_penalty", "sampling", 1.0, "Above 1 makes repetition less likely.", (0.01, 10), step=0.05),
    Setting("repeat_last_n", "sampling", 64, "Tokens that penalties look back on; -1: all.", (-1, 2**31 - 1), step=16),
    Setting("presence_penalty", "sampling", 0.0, "Taken off once for a token that occurred.", (-10, 10), step=0.1),
    Setting("frequency_penalty", "sampling", 0.0, "Taken off for each time it occurred.", (-10, 10), step=0.1),
    _rare("top_n_sigma", -1.0, "Keep logits within n deviations of the highest; 0 or less: all.", (-1, 100), 0.1),
    _rare("dynatemp_range", 0.0, "Vary the temperature by so much, with the entropy; 0: off.", (0, 5), 0.05),
    _rare("dynatemp_exponent", 1.0, "How entropy maps to the temperature.", (0, 10), 0.1),
    _rare("xtc_probability", 0.0, "How often all of the likeliest but one are excluded; 0: off.", (0, 1), 0.05),
    _rare("xtc_threshold", 0.1, "Probability from which on a token counts as likely there.", (0, 1), 0.01),
    _rare("dry_multiplier", 0.0, "Makes longer repetitions less likely (DRY); 0: off.", (0, 100), 0.1),
    _rare("dry_base", 1.75, "What a longer repetition multiplies its penalty with.", (0, 100), 0.05),
    _rare("dry_allowed_length", 2, "Repeated tokens that cost nothing.", (0, 2**31 - 1), 1),
    _rare("dry_penalty_last_n", 64, "Tokens searched for repetitions; -1: all.", (-1, 2**31 - 1), 16),
    _rare("dry_sequence_breakers", ("\n", ":", '"', "*"), "Texts that a repetition does not reach over."),
    _rare("mirostat", 0, "1 or 2: steers the surprise in place of all that crops; 0: off.", (0, 2), 1),
    _rare("mirostat_tau", 5.0, "Bits of surprise a token that mirostat aims at.", (0, 100), 0.1),
    _rare("mirostat_eta", 0.1, "How fast mirostat learns.", (0, 1), 0.01),
    _rare("samplers", _SAMPLERS, "The samplers in the order they act."),
    _rare("logit_bias", (), "Makes tokens likelier or less likely: 15043+1, 15043-inf."),
    _rare("ignore_eos", False, "The model cannot end its answer."),
    Setting("seed", "sampling", -1, "Same seed, same answer; -1: another one each time.", (-1, 2**63 - 1), step=1),
    Setting("theme", "interface", "", "Colour theme; empty: the program's own."),
    Setting("plain", "interface", False, "Lines of text in place of the screen, for screen readers."),
    Setting("inspect_tokens", "interface", False, "Keep what each token of an answer was chosen from, and show it."),
    Setting(
        "show_profile", "interface", False, "Panel that says where the time of an answer goes; measured only then."
    ),
    Setting("show_panels", "interface", True, "Panels beside the chat where the terminal is wide enough."),
)
SCHEMA: dict[str, Setting] = {setting.name: setting for setting in _SETTINGS}
TABLES = tuple(dict.fromkeys(setting.table for setting in _SETTINGS))
SAMPLING_NAMES = tuple(setting.name for setting in _SETTINGS if setting.table == "sampling")
RARE_SAMPLING: dict[str, Any] = {setting.name: setting.default for setting in _SETTINGS if setting.rare}


@dataclass(frozen=True, slots=True)
class Settings:
    """Frozen values in layers; the strongest layer that has a value wins."""

    layers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        return self._find(name)[0]

    def origin(self, name: str) -> str:
        """One of ORIGINS."""
        return self._find(name)[1]

    def sampling(self) -> dict[str, Any]:
        """All sampling values by name."""
        return {name: self.value(name) for name in SAMPLING_NAMES}

    def with_layer(self, origin: str, values: Mapping[str, Any]) -> Settings:
        """A copy in which exactly `values` come from `origin`. Raises SettingsError for a value that is not valid."""
        checked = {name: check(name, value) for name, value in values.items()}
        return Settings({**self.layers, origin: checked})

    def with_value(self, origin: str, name: str, value: Any) -> Settings:
        """A copy with one more value from `origin`. Raises SettingsError."""
        return self.with_layer(origin, {**self.layers.get(origin, {}), name: value})

    def without_value(self, origin: str, name: str) -> Settings:
        """A copy in which `origin` says nothing of `name`."""
        layer = {other: value for other, value in self.layers.get(origin, {}).items() if other != name}
        return Settings({**self.layers, origin: layer})

    def _find(self, name: str) -> tuple[Any, str]:
        for origin in ORIGINS:
            layer = self.layers.get(origin, {})
            if name in layer:
                return layer[name], origin
        return SCHEMA[name].default, BUILT_IN


def check(name: str, value: Any) -> Any:
    """`value` in the setting's own type. Raises SettingsError with one line."""
    setting = SCHEMA.get(name)
    if setting is None:
        raise SettingsError(f"{_key(name)}: there is no such setting{_near_match(name, SCHEMA)}")
    if type(value) is int and isinstance(setting.default, float):
        value = float(value) if abs(value) < 2**53 else math.inf
    # Not isinstance: a bool is an int to it.
    valid = type(value) is type(setting.default)
    if valid and setting.range is not None:
        valid = math.isfinite(value) and setting.range[0] <= value <= setting.range[1]
    if valid and setting.choices:
        valid = value in setting.choices
    if isinstance(setting.default, tuple):
        valid = isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
    if not valid:
        raise SettingsError(f"{name}: expected {setting.expected}, found {_shown(value)}")
    if isinstance(setting.default, tuple):
        value = tuple(value)
        if name in ("samplers", "logit_bias") and value != setting.default:
            _check_with_engine(name, value)
    return value


def _check_with_engine(name: str, value: Any) -> None:
    """What only the engine understands, which is not loaded before it is needed."""
    from tinyllm_engine.errors import EngineError
    from tinyllm_engine.sampling.params import SamplingParams

    try:
        SamplingParams(**{name: value})
    except EngineError as error:
        raise SettingsError(str(error)) from error


def parse(name: str, text: str) -> Any:
    """The value of a setting written as text. Raises SettingsError with one line."""
    setting = SCHEMA.get(name)
    value: Any = text
    if setting is not None and isinstance(setting.default, tuple):
        return check(name, _list_of(text))
    if setting is not None and not isinstance(setting.default, str):
        convert: Callable[[str], Any] = type(setting.default)
        if isinstance(setting.default, bool):
            convert = lambda word: _BOOLEANS[word.lower()]  # noqa: E731
        try:
            value = convert(text.strip())
        except (ValueError, KeyError):
            raise SettingsError(f"{name}: expected {setting.expected}, found {_shown(text)}") from None
    return check(name, value)


def _list_of(text: str) -> Any:
    """A list in JSON, or the one text of it; nothing: the empty list."""
    if text.lstrip().startswith("["):
        with contextlib.suppress(ValueError):
            return json.loads(text)
    return [unescaped(text)] if text else []


def unescaped(text: str) -> str:
    r"""With \n, \t, \" and \\ replaced by what they mean."""
    meanings = {"\\n": "\n", "\\t": "\t", "\\r": "\r", '\\"': '"', "\\\\": "\\"}
    return re.sub(r'\\[ntr"\\]', lambda match: meanings[match.group()], text)


def nudge(name: str, value: Any, steps: int) -> Any:
    """`value` moved by `steps` natural increments and clamped to its range. Raises SettingsError if it has none."""
    setting = SCHEMA.get(name)
    if setting is None or setting.step is None or setting.range is None:
        raise SettingsError(f"{_key(name)}: this cannot be turned up or down")
    lowest, highest = setting.range
    moved = min(max(value + steps * setting.step, lowest), highest)
    # Ten presses of 0.05 shall read 0.5, not 0.49999999999999994.
    return round(float(moved), 4) if isinstance(setting.default, float) else int(moved)


@dataclass(frozen=True, slots=True)
class LoadResult:
    settings: Settings
    warnings: list[str]  # one line each
    keys: Mapping[str, Any] = field(default_factory=dict)  # what [keys] of the config file says, unchecked
    presets: Mapping[str, Any] = field(default_factory=dict)  # what [presets] of the config file says, unchecked


def load_settings(cli: Mapping[str, Any], env: Mapping[str, str], paths: Paths) -> LoadResult:
    """Settings from the command line (by setting name; None is not given), the environment and the config file.

    The config file is created if there is none. What is wrong in the environment or the file is a warning and not used;
    what is wrong on the command line raises SettingsError.
    """
    warnings: list[str] = []
    document = _read_config(paths.config_file, warnings)
    keys, presets = (_taken(document, table, paths.config_file, warnings) for table in (KEYS_TABLE, PRESETS_TABLE))
    settings = Settings()
    settings = settings.with_layer(CONFIG, _from_config(paths.config_file, document, warnings))
    settings = settings.with_layer(ENVIRONMENT, _from_environment(env, warnings))
    settings = settings.with_layer(COMMAND_LINE, {name: value for name, value in cli.items() if value is not None})
    return LoadResult(settings, warnings, keys, presets)


def _taken(document: dict[str, Any], table: str, path: Path, warnings: list[str]) -> dict[str, Any]:
    """A table of the config file that others understand, taken out of it."""
    entries = document.pop(table, {})
    if not isinstance(entries, dict):
        warnings.append(f"{path}: {table}: expected the table [{table}] (not used)")
        return {}
    return entries


def _from_environment(env: Mapping[str, str], warnings: list[str]) -> dict[str, Any]:
    values = {}
    for name in SCHEMA:
        variable = ENVIRONMENT_PREFIX + name.upper()
        text = env.get(variable)
        if text is None or (text == "" and not isinstance(SCHEMA[name].default, str)):
            continue
        try:
            values[name] = parse(name, text)
        except SettingsError as error:
            warnings.append(f"environment variable {variable}: {error} (not used)")
    return values


def _read_config(path: Path, warnings: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(read_file(path, CONFIG_LIMIT).decode("utf-8-sig"))
    except FileNotFoundError:
        create_config(path)
    except OSError as error:
        warnings.append(f"{path}: cannot be read ({reason_of(error)}), it is not used")
    except UnicodeDecodeError as error:
        warnings.append(f"{path}: byte {error.start} is not UTF-8; the file is not used")
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        warnings.append(f"{path}: {_one_line(reason)}; the file is not used")
    return {}


def _from_config(path: Path, document: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for table, entries in document.items():
        if table not in TABLES or not isinstance(entries, dict):
            warnings.append(f"{path}: {_misplaced(table)} (not used)")
            continue
        for name, value in entries.items():
            _take(path, table, name, value, values, warnings)
    return values


def _take(path: Path, table: str, name: str, value: Any, values: dict[str, Any], warnings: list[str]) -> None:
    """Takes one entry of the config file, or says why not."""
    if name in SCHEMA and SCHEMA[name].table != table:
        warnings.append(f"{path}: [{table}] {name}: it belongs under [{SCHEMA[name].table}] (not used)")
        return
    try:
        values[name] = check(name, value)
    except SettingsError as error:
        warnings.append(f"{path}: [{table}] {error} (not used)")


def _misplaced(key: str) -> str:
    """What is wrong with something at the top of the config file."""
    if key in SCHEMA:
        return f"{key}: it belongs under [{SCHEMA[key].table}]"
    if key in TABLES:
        return f"{key}: expected the table [{key}]"
    return f"[{_key(key)}]: there is no such table{_near_match(key, [*TABLES, KEYS_TABLE, PRESETS_TABLE, *SCHEMA])}"


def _near_match(name: str, known: Any) -> str:
    """A suggestion for a misspelt name, to be put behind a sentence; empty if nothing is near."""
    lowered = name.lower().replace("-", "_")
    matches = [candidate for candidate in known if len(lowered) >= 3 and candidate.startswith(lowered)]
    matches = matches or difflib.get_close_matches(lowered, known, 1)
    return f", did you mean {matches[0]}?" if matches else ""


def create_config(path: Path) -> None:
    """Writes a config file that says what there is and sets nothing. Failing costs nothing but the file."""
    import tomlkit  # needed once in the life of an installation

    document = tomlkit.document()
    document.add(tomlkit.comment("Settings of tinyllm-chat. Remove the # before a line to set it."))
    document.add(tomlkit.comment("Stronger than this file: the command line, then environment variables TINYLLM_NAME."))
    for table in TABLES:
        entries = tomlkit.table()
        for setting in _SETTINGS:
            if setting.table == table:
                entries.add(tomlkit.nl())
                entries.add(tomlkit.comment(setting.help))
                if setting.choices or setting.range is not None:
                    entries.add(tomlkit.comment(f"{setting.expected[0].upper()}{setting.expected[1:]}."))
                entries.add(tomlkit.comment(f"{setting.name} = {tomlkit.item(_plain(setting.default)).as_string()}"))
        document.add(tomlkit.nl())
        document.add(table, entries)
    document.add(tomlkit.nl())
    document.add(tomlkit.comment(f'[{KEYS_TABLE}]  # stop = "escape ctrl+x"; tinyllm-chat --keys prints every action'))
    document.add(tomlkit.comment("Sampling values of your own under a name, for /preset brief:"))
    document.add(tomlkit.comment(f"[{PRESETS_TABLE}.brief]"))
    document.add(tomlkit.comment("  temperature = 0.4"))
    try:
        write_atomically(path, tomlkit.dumps(document).encode())
    except OSError as error:
        log.warning("%s: the config file could not be created: %s", path, error)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    """A value as part of a message: short, printable, on one line."""
    return reprlib.repr(value)


def _key(name: str) -> str:
    """A name that someone wrote: as it is if it could be one of ours."""
    return name if name.isascii() and name.isidentifier() and len(name) <= 40 else _shown(name)


def _one_line(text: str) -> str:
    return " ".join(text.split())
