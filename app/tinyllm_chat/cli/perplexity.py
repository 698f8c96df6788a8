"""`tinyllm-chat perplexity`: how well a model predicts a text."""

from __future__ import annotations

from dataclasses import asdict

import click

from tinyllm_chat.cli.cache_options import cache_types
from tinyllm_chat.cli.text import print_json


@click.command("perplexity")
@click.argument("model")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("-c", "--ctx-size", "context", type=click.IntRange(4), default=512, show_default=True, metavar="N")
@click.option("-t", "--threads", type=click.IntRange(1), metavar="N", help="Default: all cores.")
@cache_types
@click.option("--json", "as_json", is_flag=True, help="Prints one JSON object.")
def command(model: str, file: str, context: int, threads: int | None, k_type: str, v_type: str, as_json: bool) -> None:
    """Prints the perplexity of MODEL on the text in FILE (- is standard input), as llama-perplexity counts it."""
    from tinyllm_engine.perplexity import perplexity

    from tinyllm_chat.cli.engine import opened
    from tinyllm_chat.cli.input import read_text
    from tinyllm_chat.cli.progress import ProgressBar

    text = read_text(file)
    with (
        ProgressBar() as progress,
        opened(model, progress.update, context, (k_type, v_type), threads) as runner,
    ):
        tokenizer = runner.model.tokenizer
        bos = tokenizer.bos_id if tokenizer.add_bos else None
        result = perplexity(runner, tokenizer.encode(text), context, bos, progress.update)
    if as_json:
        figures = asdict(result)
        print_json({"perplexity": figures.pop("value"), **figures, "context": context, "threads": runner.threads})
    else:
        click.echo(f"{result.value:.4f}  {result.tokens} tokens scored in {result.windows} windows of {context}")
