"""Writes single settings into config.toml; comments, order and whatever else stands there stay as they are."""

from __future__ import annotations

import errno
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from tinyllm_chat.chat.errors import SettingsError, reason_of
from tinyllm_chat.chat.files import read_file, write_atomically
from tinyllm_chat.chat.settings import CONFIG_LIMIT, SCHEMA, check, create_config

_BOM = "\ufeff"


class ConfigChanged(SettingsError):
    """Somebody else has changed the setting in the file. `value` is what stands there now, None for nothing."""

    def __init__(self, message: str, value: Any) -> None:
        super().__init__(message)
        self.value = value


def write_setting(path: Path, name: str, value: Any, seen: Any) -> None:
    """Sets `name` in the file at `path`, or removes it for None. Raises SettingsError; then the file is as it was.

    `seen`: what the file said when it was last read, None for nothing. If it says something else now, nothing is
    written and ConfigChanged raised. Other settings may have changed: they stay changed.
    """
    try:
        text, document = _read(path)
        found = _valid(name, document)
        if found != seen:
            raise ConfigChanged(f"{path}: {name} was changed there meanwhile, to {_shown(found)}", found)
        if value is None and name not in _table(document, name):
            return
        edited = _edited(text, document, name, value)
        if _read(path)[0] != text:
            raise SettingsError(f"{path}: it was changed just now; nothing is saved, try again")
        # Where the file is a link to another folder, as of dotfiles, it stays one.
        write_atomically(Path(os.path.realpath(path)), edited.encode())
    except OSError as error:
        raise SettingsError(f"{path}: cannot be written ({reason_of(error)})") from error


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """The text and what it means."""
    if not path.exists():
        create_config(path)
    try:
        text = read_file(path, CONFIG_LIMIT).decode()
        return text, tomllib.loads(text.removeprefix(_BOM))
    except FileNotFoundError:
        return "", {}
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        if isinstance(error, OSError):
            if error.errno != errno.EFBIG:
                raise
            reason = error.strerror or reason
        elif isinstance(error, RecursionError):
            reason = "it is nested too deeply"
        raise SettingsError(f"{path}: {reason}; nothing is saved until that is put right") from error


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    table = document.get(SCHEMA[name].table, {})
    return table if isinstance(table, dict) else {}


def _valid(name: str, document: dict[str, Any]) -> Any:
    """The value that the file gives the setting; None where it gives none or one that is not used."""
    try:
        return check(name, _table(document, name)[name])
    except (KeyError, SettingsError):
        return None


def _edited(text: str, document: dict[str, Any], name: str, value: Any) -> str:
    """The text with the change and nothing else changed. Raises SettingsError where that cannot be done."""
    table = SCHEMA[name].table
    wanted = {**document, table: {**_table(document, name)}}
    if value is None:
        del wanted[table][name]
    else:
        wanted[table][name] = list(value) if isinstance(value, tuple) else value
    bom = _BOM if text.startswith(_BOM) else ""
    for edit in (_below_its_comment, _with_tomlkit):
        edited = edit(text.removeprefix(_BOM), table, name, wanted[table].get(name))
        if edited is not None and _means(edited, wanted):
            return bom + edited
    raise SettingsError(f"config.toml: [{table}] {name} cannot be changed from here; edit the file")


def _means(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except ValueError:
        return False


def _below_its_comment(text: str, table: str, name: str, value: Any) -> str | None:
    """With a new line below `# name = default`, where the file of the first start still has that."""
    if value is None:
        return None
    lines = text.splitlines(keepends=True)
    section = ""
    for number, line in enumerate(lines):
        if header := re.match(r"\[\s*([\w-]+)\s*\]", line):
            section = header[1]
        elif section == table and re.match(rf"#\s*{name}\s*=", line):
            end = "\r\n" if line.endswith("\r\n") else "\n"
            lines[number] = f"{line.rstrip()}{end}{name} = {_written(value)}{end}"
            return "".join(lines)
    return None


def _with_tomlkit(text: str, table: str, name: str, value: Any) -> str | None:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        if table not in document:
            if text.strip():
                document.add(tomlkit.nl())
            document.add(table, tomlkit.table())
        entries: Any = document[table]
        if value is None:
            entries.remove(name)
        else:
            entries[name] = value
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError):  # what is called like the table is a value
        return None


def _written(value: Any) -> str:
    import tomlkit

    return str(tomlkit.item(value).as_string())


def _shown(value: Any) -> str:
    return "nothing" if value is None else _written(list(value) if isinstance(value, tuple) else value)[:60]
