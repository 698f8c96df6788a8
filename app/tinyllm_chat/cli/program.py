"""The command line: `tinyllm-chat [MODEL] [FLAGS]` chats or answers once; a verb as the first word does something else.

Flags follow llama-cli. Only what the given words need is imported: a verb's module when it is named, the screen last.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from tinyllm_chat import __version__
from tinyllm_chat.chat.cache_types import CACHE_TYPES
from tinyllm_chat.chat.context_policy import POLICIES
from tinyllm_chat.cli import completion
from tinyllm_chat.cli.failure import one_line_errors
from tinyllm_chat.cli.verbs import VERBS


class Program(click.Command):
    """The chat's own command; where the first word is a verb, that verb's command takes the rest."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with one_line_errors():
            if args and args[0] in VERBS:
                return _verb(args[0]).make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with one_line_errors():
            return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs (tinyllm-chat VERB --help says more)"):
            formatter.write_dl(list(VERBS.items()))


def _verb(name: str) -> click.Command:
    command: click.Command = import_module(f"tinyllm_chat.cli.{name}").command
    return command


def setting(*names: str, **how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that overrides a setting: its last name is the setting's. None where it was not typed."""
    return click.option(*names, default=None, callback=_checked, **how)


def texts(*names: str, **how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that may be given several times and is a list of texts; \\n in one is a new line."""
    return click.option(*names, multiple=True, callback=_checked_texts, **how)


def files(*names: str, **how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that may be given several times and is a list of files, each as it was typed."""
    return click.option(*names, multiple=True, callback=_checked_files, **how)


def _checked_files(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> Any:
    return () if value == ("none",) else _checked(ctx, parameter, value)


def _checked_texts(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> Any:
    from tinyllm_chat.chat.settings import unescaped

    if not value:
        return None
    words = tuple(map(unescaped, value))
    return _checked(ctx, parameter, () if words == ("none",) else words) or ()


def _checked(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    from tinyllm_chat.chat.errors import SettingsError
    from tinyllm_chat.chat.settings import check

    name = parameter.name or ""
    if value is None or value == ():
        return None
    if value == -1 and name in ("max_tokens", "threads"):  # llama-cli's way to say that there is no limit
        value = 0
    try:
        return check(name, value)
    except SettingsError as error:
        raise click.BadParameter(str(error).removeprefix(f"{name}: "), ctx, parameter) from error


@click.command(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("positional", metavar="[MODEL]", required=False, shell_complete=completion.first_words)
@click.option(
    "-m", "--model", "model", metavar="MODEL", shell_complete=completion.models, help="The same as the first word."
)
@files("--lora", "lora", metavar="FILE[:SCALE]", help="LoRA adapter for the model; may be given several times.")
@setting(
    "-c", "--ctx-size", "context_length", type=int, metavar="N", help="Tokens of context; 0: the model's own length."
)
@setting("--context-full", "context_full", type=click.Choice(POLICIES), help="What happens when the context is full.")
@setting("--keep", "keep", type=int, metavar="N", help="Turns that begin within N tokens are never left out.")
@setting("-n", "--predict", "--n-predict", "max_tokens", type=int, metavar="N", help="Most tokens of one answer.")
@setting("-t", "--threads", "threads", type=int, metavar="N", help="Threads; 0: as many as there are cores to use.")
@setting("-ctk", "--cache-type-k", "cache_type_k", type=click.Choice(CACHE_TYPES), help="Number type of cached keys.")
@setting("-ctv", "--cache-type-v", "cache_type_v", type=click.Choice(CACHE_TYPES), help="And of cached values.")
@setting("--keep-kv", "keep_kv", is_flag=True, flag_value=True, help="Keeps the cache of chats on disk.")
@setting("--preset", "preset", metavar="NAME", help="Sampling values: precise, balanced, creative, or your own.")
@setting("--temp", "--temperature", "temperature", type=float, metavar="X", help="0: always the likeliest token.")
@setting("--top-k", "top_k", type=int, metavar="N", help="Only the N likeliest tokens; 0: all.")
@setting("--top-p", "top_p", type=float, metavar="P", help="Only the likeliest tokens that together reach P.")
@setting("--min-p", "min_p", type=float, metavar="P", help="Only tokens at least P times as likely as the likeliest.")
@setting("--typical", "--typical-p", "typical_p", type=float, metavar="P", help="Locally typical sampling; 1: off.")
@setting("--repeat-penalty", "repeat_penalty", type=float, metavar="X", help="Penalty of repeated tokens; 1: off.")
@setting("--repeat-last-n", "repeat_last_n", type=int, metavar="N", help="Tokens that the penalties look back.")
@setting("--presence-penalty", "presence_penalty", type=float, metavar="X", help="0: off.")
@setting("--frequency-penalty", "frequency_penalty", type=float, metavar="X", help="0: off.")
@setting("--top-nsigma", "--top-n-sigma", "top_n_sigma", type=float, metavar="N", help="Logits within N deviations.")
@setting("--dynatemp-range", "dynatemp_range", type=float, metavar="X", help="Dynamic temperature; 0: off.")
@setting("--dynatemp-exp", "dynatemp_exponent", type=float, metavar="X", help="Its exponent.")
@setting("--xtc-probability", "xtc_probability", type=float, metavar="P", help="Excludes top choices; 0: off.")
@setting("--xtc-threshold", "xtc_threshold", type=float, metavar="P", help="What is a top choice.")
@setting("--dry-multiplier", "dry_multiplier", type=float, metavar="X", help="DRY against repetition; 0: off.")
@setting("--dry-base", "dry_base", type=float, metavar="X", help="Growth of its penalty.")
@setting("--dry-allowed-length", "dry_allowed_length", type=int, metavar="N", help="Repeated tokens without penalty.")
@setting("--dry-penalty-last-n", "dry_penalty_last_n", type=int, metavar="N", help="Tokens searched; -1: all.")
@texts("--dry-sequence-breaker", "dry_sequence_breakers", metavar="TEXT", help="In place of the defaults; none: none.")
@setting("--mirostat", "mirostat", type=int, metavar="N", help="1 or 2; 0: off.")
@setting("--mirostat-ent", "mirostat_tau", type=float, metavar="X", help="Its target, in bits a token.")
@setting("--mirostat-lr", "mirostat_eta", type=float, metavar="X", help="How fast it learns.")
@texts("--samplers", "samplers", metavar="NAMES", help="Which samplers in what order: top_k;temperature")
@texts("-l", "--logit-bias", "logit_bias", metavar="ID+X", help="Adds X to a token's logit; ID-inf: never.")
@setting("--ignore-eos", "ignore_eos", is_flag=True, flag_value=True, help="Does not let the model end its answer.")
@texts("--reverse-prompt", "--stop", "stop", metavar="TEXT", help="Ends the answer where TEXT appears.")
@click.option("--grammar", metavar="GBNF", help="What answers must look like, in llama.cpp's notation.")
@click.option("--grammar-file", metavar="FILE", help="The same from a file.")
@click.option("-j", "--json-schema", metavar="JSON", help="Answers are JSON that obeys this schema; {}: any JSON.")
@click.option("-jf", "--json-schema-file", metavar="FILE", help="The same from a file.")
@setting("-s", "--seed", "seed", type=int, metavar="N", help="Seed of the random numbers; -1: a new one each time.")
@setting(
    "--chat-template",
    "chat_template",
    metavar="NAME|FILE",
    help="Format of the conversation: a known one (chatml, llama3, ...), a Jinja file, or none.",
)
@setting("--think", "think", type=click.Choice(["on", "off", "auto"]), help="Shall the model think before it answers?")
@setting("-sys", "--system-prompt", "system_prompt", metavar="TEXT", help="What the model is told first.")
@click.option("-p", "--prompt", metavar="TEXT", help="Answers once on standard output, without the screen.")
@click.option(
    "-f",
    "--file",
    type=click.Path(allow_dash=True, path_type=str),
    metavar="FILE",
    help="Text to answer, after that of -p if both are given; - is standard input.",
)
@setting("--plain", "plain", is_flag=True, flag_value=True, help="Chats in lines of text, for screen readers.")
@click.option("--raw", is_flag=True, help="With a prompt: continues the text as it is, without the chat template.")
@click.option("--continue", "continue_last", is_flag=True, help="Opens the last chat.")
@click.option(
    "--resume",
    "resume",
    metavar="CHAT",
    shell_complete=completion.chats,
    help="Opens a chat: its id, or words of its title.",
)
@click.option("--paths", is_flag=True, help="Prints the folders that are used.")
@click.option(
    "--completions",
    type=click.Choice(completion.SHELLS),
    help="Prints what the shell has to read to complete this command.",
)
@click.option("--keys", is_flag=True, help="Prints every action with its keys, as a part of config.toml.")
@click.version_option(__version__, message="tinyllm-chat %(version)s")
def program(**arguments: Any) -> None:
    """Chat in the terminal with a language model that runs on this machine.

    MODEL is a GGUF file, a name in the models folder, or a name of the catalogue (downloaded at first use). Without
    one a start screen lists what there is. With -p, or with text on standard input, one answer is printed instead.
    """
    if shell := arguments.pop("completions"):
        click.echo(completion.script(program, shell))
        return
    from tinyllm_chat.cli.chat import run

    run(**arguments)
