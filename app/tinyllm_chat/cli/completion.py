"""What the shell completes: flags and their values from the parser, names of models, ids of chats.

`tinyllm-chat --completions bash` prints a script that asks the program itself at every Tab, so it is never out of date.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from tinyllm_chat.cli.failure import UsageFailure
from tinyllm_chat.cli.verbs import VERBS

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "tinyllm-chat"
VARIABLE = "_TINYLLM_CHAT_COMPLETE"  # by which click is asked
SHOWN_CHATS = 30


def script(command: click.Command, shell: str) -> str:
    """What the shell has to read to complete `command`. Raises UsageFailure."""
    found = get_completion_class(shell)
    if found is None:
        raise UsageFailure(f"--completions {shell}: expected one of {', '.join(SHELLS)}")
    # Its `source()` starts bash to look at its age, and says nothing useful where there is none.
    completion = found(command, {}, PROGRAM, VARIABLE)
    return completion.source_template % completion.source_vars()


def first_words(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Verbs and models."""
    verbs = [CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)]
    named = models(ctx, parameter, incomplete)
    return verbs if verbs and named and named[0].type == "file" else [*named, *verbs]


def models(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names in the models folder and of the catalogue; files where no name begins so."""
    from tinyllm_chat.chat.catalogue import load_catalogue
    from tinyllm_chat.chat.models import find_models
    from tinyllm_chat.chat.paths import Paths

    names = {model.name: "" for model in find_models(Paths.default())}
    names |= {name: entry.title for name, entry in load_catalogue().items()}
    found = [CompletionItem(name, help=title) for name, title in names.items() if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def chats(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of chats, the latest first, with their titles."""
    from tinyllm_chat.chat.paths import Paths
    from tinyllm_chat.chat.transcript import TranscriptStore
    from tinyllm_chat.cli.text import one_line

    listed = TranscriptStore(Paths.default().transcripts).list()[:SHOWN_CHATS]
    return [CompletionItem(chat.id, help=one_line(chat.title)) for chat in listed if chat.id.startswith(incomplete)]
