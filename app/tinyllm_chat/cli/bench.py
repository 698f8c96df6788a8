"""`tinyllm-chat bench`: how fast a model reads a prompt and writes an answer on this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from tinyllm_chat.cli.text import one_line, print_json, size


@click.command("bench")
@click.argument("model")
@click.option("-p", "--n-prompt", "prompt", type=click.IntRange(1), default=512, show_default=True, metavar="N")
@click.option("-n", "--n-gen", "predict", type=click.IntRange(1), default=128, show_default=True, metavar="N")
@click.option("-t", "--threads", type=click.IntRange(1), metavar="N", help="Default: all cores.")
@click.option("-r", "--repetitions", "runs", type=click.IntRange(1), default=3, show_default=True, metavar="N")
@click.option("--cache-type", type=click.Choice(["f16", "f32"]), default="f16", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Prints one JSON object.")
def command(
    model: str, prompt: int, predict: int, threads: int | None, runs: int, cache_type: str, as_json: bool
) -> None:
    """Measures MODEL: reading -p tokens, writing -n tokens. Figures are medians of -r runs after a first, cold one."""
    from tinyllm_engine.measure import bench
    from tinyllm_engine.simd import TARGET

    from tinyllm_chat.cli.doctor import processor_name
    from tinyllm_chat.cli.engine import opened
    from tinyllm_chat.cli.progress import ProgressBar

    with (
        ProgressBar() as progress,
        opened(
            model, progress.update, context_length=max(prompt, predict), kv_type=cache_type, threads=threads
        ) as runner,
    ):
        figures = asdict(bench(runner, prompt, predict, runs, progress.update))
    weights = runner.model
    report = figures | {
        "model": {
            "name": weights.name,
            "path": weights.path,
            "file_type": weights.file_type,
            "parameters": weights.parameters,
            "weight_bytes": weights.weight_bytes,
        },
        "cache_type": cache_type,
        "threads": runner.threads,
        "simd": TARGET,
        "cpu": processor_name(),
    }
    if as_json:
        print_json(report)
    else:
        print_report(report)


def print_report(report: dict[str, Any]) -> None:
    model, prefill, decode = report["model"], report["prefill"], report["decode"]
    click.echo(one_line(f"{model['name']}  {model['file_type']}  {size(model['weight_bytes'])}"))
    click.echo(one_line(f"{report['cpu']}, {report['threads']} threads, {report['simd']}"))
    click.echo(f"prefill      {prefill['tokens_per_second']:9.1f} tokens/s  {prefill['tokens']} tokens")
    click.echo(
        f"decode       {decode['tokens_per_second']:9.1f} tokens/s  {decode['tokens']} tokens, "
        f"{decode['gb_per_second']:.1f} GB/s of weights"
    )
    click.echo(f"first token  {report['first_token_seconds'] * 1000:9.1f} ms        after {prefill['tokens']} tokens")
