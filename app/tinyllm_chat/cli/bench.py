"""`tinyllm-chat bench`: how fast a model reads a prompt and writes an answer on this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from tinyllm_chat.chat.cache_types import described
from tinyllm_chat.cli.cache_options import cache_types
from tinyllm_chat.cli.completion import models
from tinyllm_chat.cli.failure import UsageFailure
from tinyllm_chat.cli.text import one_line, print_json
from tinyllm_chat.tui.text import size

PREDICT, TUI_PREDICT = 128, 512
LONGEST_CONTEXT = 8192


@click.command("bench")
@click.argument("model", shell_complete=models)
@click.option("-p", "--n-prompt", "prompt", type=click.IntRange(1), default=512, show_default=True, metavar="N")
@click.option(
    "-n",
    "--n-gen",
    "predict",
    type=click.IntRange(1),
    metavar="N",
    help=f"Default: {PREDICT}; {TUI_PREDICT} with --tui.",
)
@click.option(
    "-d", "--n-depth", "depth", type=click.IntRange(0), default=0, metavar="N", help="Writes behind N tokens."
)
@click.option("-t", "--threads", type=click.IntRange(1), metavar="N", help="Default: all cores.")
@click.option("-r", "--repetitions", "runs", type=click.IntRange(1), default=3, show_default=True, metavar="N")
@cache_types
@click.option("--profile", is_flag=True, help="Adds where the time goes, by kind of op.")
@click.option(
    "--tui", is_flag=True, help="Measures writing in the chat's own screen, and beside it without the screen."
)
@click.option("--context", is_flag=True, help="Measures contexts from 128 tokens to the model's own length or 8192.")
@click.option("--json", "as_json", is_flag=True, help="Prints one JSON object.")
def command(
    model: str,
    prompt: int,
    predict: int | None,
    depth: int,
    threads: int | None,
    runs: int,
    k_type: str,
    v_type: str,
    profile: bool,
    tui: bool,
    context: bool,
    as_json: bool,
) -> None:
    """Measures MODEL: reading -p tokens, writing -n tokens. Figures are medians of -r runs after a first, cold one."""
    from tinyllm_engine.simd import TARGET

    from tinyllm_chat.chat.paths import Paths
    from tinyllm_chat.cli.bench_tui import measured
    from tinyllm_chat.cli.doctor import processor_name
    from tinyllm_chat.cli.models import model_path

    if tui and (profile or depth):
        raise UsageFailure("--tui measures writing from an empty chat: it takes neither --profile nor -d")
    if context and (tui or profile or depth or predict):
        raise UsageFailure("--context takes -r, -t, -ctk and -ctv alone")
    types = k_type, v_type
    path = str(model_path(model, Paths.default()))
    if context:
        report = _contexts(path, threads, runs, types)
    elif tui:
        report = measured(path, predict or TUI_PREDICT, threads or 0, runs, types)
    else:
        report = _alone(path, prompt, predict or PREDICT, depth, threads, runs, types, profile)
    report |= {"model": _described(path), "cache_type": described(*types), "simd": TARGET, "cpu": processor_name()}
    if as_json:
        print_json(report)
        return
    print_head(report)
    if context:
        print_contexts(report["context"])
    elif tui:
        print_tui(report["tui"])
    else:
        print_figures(report)
    for title, found in report.get("profile", {}).items():
        print_profile(title, found)


def _alone(
    path: str,
    prompt: int,
    predict: int,
    depth: int,
    threads: int | None,
    runs: int,
    types: tuple[str, str],
    profile: bool,
) -> dict[str, Any]:
    from tinyllm_engine.measure import bench, profiles

    from tinyllm_chat.cli.engine import opened
    from tinyllm_chat.cli.progress import ProgressBar

    context = max(prompt, depth + predict)
    with ProgressBar() as progress, opened(path, progress.update, context, types, threads) as runner:
        work: dict[str, Any] = {"prompt": prompt, "predict": predict, "runs": runs, "depth": depth}
        report = asdict(bench(runner, **work, progress=progress.update))
        if profile:
            report["profile"] = asdict(profiles(runner, **work, progress=progress.update))
        return report | {"threads": runner.threads}


def _contexts(path: str, threads: int | None, runs: int, types: tuple[str, str]) -> dict[str, Any]:
    from tinyllm_engine import Model
    from tinyllm_engine.context_curve import context_curve

    from tinyllm_chat.cli.engine import opened
    from tinyllm_chat.cli.progress import ProgressBar

    longest = min(LONGEST_CONTEXT, Model.open(path).config.context_length)
    with ProgressBar() as progress, opened(path, progress.update, longest, types, threads) as runner:
        points = context_curve(runner, longest, runs, progress.update)
        return {"context": [asdict(point) for point in points], "threads": runner.threads}


def _described(path: str) -> dict[str, Any]:
    from tinyllm_engine import Model

    model = Model.open(path)
    return {
        "name": model.name,
        "path": model.path,
        "file_type": model.file_type,
        "parameters": model.parameters,
        "weight_bytes": model.weight_bytes,
    }


def print_head(report: dict[str, Any]) -> None:
    model = report["model"]
    click.echo(one_line(f"{model['name']}  {model['file_type']}  {size(model['weight_bytes'])}"))
    click.echo(one_line(f"{report['cpu']}, {report['threads']} threads, {report['simd']}"))


def print_contexts(points: list[dict[str, Any]]) -> None:
    """A Markdown table."""
    click.echo("\n| context | prefill tok/s | its second half | decode ms/token | more than at 128 | cache MB |")
    click.echo("|---:|---:|---:|---:|---:|---:|")
    for point in points:
        speeds = f"{point['prefill_tokens_per_second']:.0f} | {point['last_tokens_per_second']:.0f}"
        times = f"{point['decode_ms']:.2f} | {point['added_ms']:.2f}"
        click.echo(f"| {point['tokens']} | {speeds} | {times} | {point['cache_mb']:.1f} |")


def print_figures(report: dict[str, Any]) -> None:
    prefill, decode, sampled, memory = report["prefill"], report["decode"], report["sampled"], report["memory"]
    behind = f" behind {report['depth']}" if report["depth"] else ""
    print_speed("prefill", prefill["tokens_per_second"], f"{prefill['tokens']} tokens")
    print_speed(
        "decode",
        decode["tokens_per_second"],
        f"{decode['tokens']} tokens{behind}, {decode['gb_per_second']:.1f} GB/s of weights",
    )
    share = sampled["sampling_percent"]
    drawn = "each drawn" if share is None else f"each drawn: sampling takes {share:.1f} %"
    print_speed("sampled", sampled["tokens_per_second"], f"{sampled['tokens']} tokens{behind}, {drawn}")
    click.echo(f"first token  {report['first_token_seconds'] * 1000:9.1f} ms        after {prefill['tokens']} tokens")
    if memory["private_mb"] is not None:
        click.echo(f"memory       {memory['private_mb']:9.1f} MB        and {memory['cache_mb']:.1f} MB of KV cache")


def print_speed(name: str, tokens_per_second: float, remark: str) -> None:
    click.echo(f"{name:<13}{tokens_per_second:9.1f} tokens/s  {remark}")


def print_tui(figures: dict[str, Any]) -> None:
    print_speed("in the chat", figures["tokens_per_second"], f"{figures['tokens']} tokens, {figures['size']}")
    print_speed("sampled", figures["sampled_tokens_per_second"], f"{_percent(figures['of_sampled'])} of it in the chat")
    print_speed("decode", figures["decode_tokens_per_second"], f"{_percent(figures['of_decode'])} of it in the chat")
    click.echo(f"screen       {100 * figures['screen_duty']:9.1f} % of a core")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def print_profile(title: str, profile: dict[str, Any]) -> None:
    """A line for each kind of op: time, share, and how fast it read (decode) or computed (prefill)."""
    tokens, seconds = profile["tokens"], profile["seconds"]
    click.echo(f"\n{title}: {1e3 * seconds / tokens:.3f} ms a token, {tokens} tokens; times of the first thread")
    for cost in profile["costs"]:
        line = f"  {cost['name']:<16}{1e6 * cost['seconds'] / tokens:9.1f} us {cost['percent']:6.1f} %"
        rate, unit = ("gb_per_second", "GB/s") if title == "decode" else ("gop_per_second", "GOP/s")
        if cost[rate] is not None:
            line += f"  {cost[rate]:7.1f} {unit}"
        click.echo(line)
