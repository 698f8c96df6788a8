"""Where files live: platform folders, each of which an environment variable can move."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

APP_NAME = "tinyllm-chat"
CONFIG_DIR, DATA_DIR, STATE_DIR, CACHE_DIR = (
    "TINYLLM_CONFIG_DIR",
    "TINYLLM_DATA_DIR",
    "TINYLLM_STATE_DIR",
    "TINYLLM_CACHE_DIR",
)
VARIABLES = {"config": CONFIG_DIR, "data": DATA_DIR, "state": STATE_DIR, "cache": CACHE_DIR}
# Where nothing can be read or written, as what is said of it shows: a user who has no home keeps nothing.
NO_HOME = Path(os.devnull) / "HOME is not set"


@dataclass(frozen=True, slots=True)
class Paths:
    """The program's folders. Nothing is created by naming them."""

    config: Path
    data: Path
    state: Path
    cache: Path

    @classmethod
    def default(cls, env: Mapping[str, str] = os.environ) -> Paths:
        """The platform's folders for this user, unless the environment names others."""
        folders = platformdirs.PlatformDirs(APP_NAME, appauthor=False)

        def folder(variable: str, kind: str) -> Path:
            if named := env.get(variable):
                return Path(os.path.expanduser(named)).absolute()
            try:
                return Path(getattr(folders, f"user_{kind}_dir")).absolute()
            except RuntimeError:
                return NO_HOME / kind

        return cls(**{kind: folder(variable, kind) for kind, variable in VARIABLES.items()})

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def transcripts(self) -> Path:
        return self.data / "transcripts"

    @property
    def exports(self) -> Path:
        return self.data / "exports"

    @property
    def models(self) -> Path:
        return self.data / "models"

    @property
    def log_file(self) -> Path:
        return self.state / "tinyllm-chat.log"

    @property
    def prompt_history(self) -> Path:
        return self.state / "prompts.jsonl"

    @property
    def drafts(self) -> Path:
        return self.state / "drafts"

    def listed(self) -> dict[str, Path]:
        """Every place by its name, for `--paths`."""
        return {
            "config": self.config_file,
            "transcripts": self.transcripts,
            "exports": self.exports,
            "models": self.models,
            "prompts": self.prompt_history,
            "drafts": self.drafts,
            "log": self.log_file,
            "cache": self.cache,
        }
