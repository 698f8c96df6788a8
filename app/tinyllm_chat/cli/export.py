"""`tinyllm-chat export`: writes a chat as a document."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command("export")
@click.argument("chat", nargs=-1, required=True)
@click.option("--format", "format", type=click.Choice(["md", "html", "json"]), help="Default: as FILE says, else md.")
@click.option(
    "-o", "--output", metavar="FILE", help="Where to; - is standard output. Default: the folder of such documents."
)
def command(chat: tuple[str, ...], format: str | None, output: str | None) -> None:
    """Writes CHAT, named by its id or words of its title, as Markdown, as a web page, or as JSON.

    Markdown and web pages hold what is visible of the chat, JSON holds every branch.
    """
    from tinyllm_chat.chat import exports
    from tinyllm_chat.chat.paths import Paths
    from tinyllm_chat.cli.chats import chat_library, chat_named
    from tinyllm_chat.cli.text import put_out

    library = chat_library()
    conversation = library.read(chat_named(library, " ".join(chat)))
    if output == "-":
        put_out(exports.document(conversation, format or "md"), nl=False)
        return
    if output is None:
        path = Paths.default().exports / exports.file_name(conversation, format or "md")
    else:
        path = Path(os.path.expanduser(output))
    exports.export(conversation, path, format)
    put_out(path)
