"""`tinyllm-chat import`: keeps the chats in documents that were exported."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
def command(files: tuple[Path, ...]) -> None:
    """Keeps the chat in each FILE, a JSON or Markdown document that was exported, and prints its id.

    A JSON list of messages with role and content is read as well.
    """
    from tinyllm_chat.chat.exports import read_document
    from tinyllm_chat.cli.chats import chat_library
    from tinyllm_chat.cli.text import one_line

    library = chat_library()
    for file in files:
        conversation, warnings = read_document(file)
        for warning in warnings:
            click.echo(f"tinyllm-chat: {one_line(warning)}", err=True)
        click.echo(f"{library.add(conversation)}  {one_line(conversation.title)}")
