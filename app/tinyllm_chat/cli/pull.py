"""`tinyllm-chat pull`: downloads a model of the catalogue into the models folder."""

from __future__ import annotations

import click

from tinyllm_chat.cli.failure import Failure, UsageFailure
from tinyllm_chat.cli.text import put_out


@click.command("pull")
@click.argument("name", required=False)
@click.option("--list", "listing", is_flag=True, help="Prints the catalogue.")
def command(name: str | None, listing: bool) -> None:
    """Downloads the model NAME of the catalogue, or hf:owner/repository/file.gguf of the Hugging Face Hub.

    One of the catalogue that is there already is only checked. A download from the Hub that was stopped goes on where
    it was; it needs huggingface_hub: pip install huggingface_hub.
    """
    if listing:
        print_catalogue()
        return
    if name is None:
        raise UsageFailure("pull needs the name of a model; pull --list prints those there are")
    from tinyllm_chat.chat.catalogue import load_catalogue
    from tinyllm_chat.chat.paths import Paths
    from tinyllm_chat.cli.models import fetch, model_path

    if name.lower().startswith("hf:"):
        put_out(model_path(name, Paths.default()))
        return
    catalogue = load_catalogue()
    if name not in catalogue:
        raise Failure(f"{name}: the catalogue has no such model; known are {', '.join(catalogue)}")
    put_out(fetch(catalogue[name], Paths.default()))


def print_catalogue() -> None:
    """One line per model: name, size, licence, title, and whether it is here."""
    from tinyllm_chat.chat.catalogue import load_catalogue
    from tinyllm_chat.chat.paths import Paths
    from tinyllm_chat.tui.text import size

    models = Paths.default().models
    for entry in load_catalogue().values():
        here = "downloaded" if (models / entry.file).is_file() else ""
        line = f"{entry.name:16}{size(entry.size):>9}  {entry.license:12}  {entry.title}  {here}"
        click.echo(line.rstrip())
