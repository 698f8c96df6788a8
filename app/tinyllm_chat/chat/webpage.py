"""A chat as a web page in one file: no scripts, nothing fetched from anywhere, light and dark."""

from __future__ import annotations

import time
from html import escape
from typing import Any

from tinyllm_chat.chat.conversation import Conversation, Message
from tinyllm_chat.chat.cuts import Cut
from tinyllm_chat.chat.markdown import clean, ending_of, speaker

# Were something to slip through the escaping, browsers would still load and run nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --text: #2b2e33; --ground: #faf9f6; --quiet: #6b6f76; --line: #e0ded8;
  --box: #f1f0ec; --accent: #1f6f8b; }
@media (prefers-color-scheme: dark) { :root { --text: #d5d6d2; --ground: #181a1f; --quiet: #8b8f96;
  --line: #2d3138; --box: #1f2228; --accent: #7fb4ca; } }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: var(--text); background: var(--ground);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1, h2, h3 { line-height: 1.3; } h1 { font-size: 1.4rem; }
.answer h1, .answer h2 { font-size: 1.2rem; } .answer h3, .answer h4 { font-size: 1.05rem; }
section { margin-top: 2rem; } section > h2 { font-size: .95rem; margin: 0 0 .4rem; color: var(--accent); }
.answer > :first-child { margin-top: 0; } .answer > :last-child { margin-bottom: 0; }
footer, time, summary, .ending, .cut { color: var(--quiet); font-size: .85rem; font-weight: normal; }
time { margin-left: .4rem; } footer { margin-top: 3rem; }
details { margin-bottom: .6rem; } summary { cursor: pointer; }
details > .plain { border-left: 3px solid var(--line); padding-left: 1rem; color: var(--quiet); font-size: .9rem; }
.plain { white-space: pre-wrap; } .user { background: var(--box); border-radius: .5rem; padding: .7rem 1rem; }
pre, code { font: .875rem/1.5 ui-monospace, monospace; background: var(--box); border-radius: .3rem; }
code { padding: .1em .3em; } pre { padding: .8rem 1rem; overflow-x: auto; } pre code { padding: 0; }
blockquote { margin-left: 0; padding-left: 1rem; border-left: 3px solid var(--line); color: var(--quiet); }
table { display: block; overflow-x: auto; border-collapse: collapse; overflow-wrap: normal; }
th, td { border: 1px solid var(--line); padding: .3rem .7rem; }
.cut { text-align: center; border-top: 1px dashed var(--line); margin: 2rem 0 .6rem; padding-top: .6rem; }
a { color: var(--accent); } hr { border: 0; border-top: 1px solid var(--line); }
@media print { body { margin: 0; max-width: none; } pre { white-space: pre-wrap; } h2 { break-after: avoid; } }
"""


def to_html(conversation: Conversation) -> str:
    """The visible path."""
    cut = conversation.cut
    messages = "\n".join(_mark(cut, message) + _section(message) for message in conversation.path())
    title = escape(clean(conversation.title))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<header><h1 dir="auto">{title}</h1></header>
<main>
{messages}
</main>
<footer><p>Written with tinyllm-chat</p></footer>
</body>
</html>
"""


def _mark(cut: Cut | None, message: Message) -> str:
    """Above a message: that the model does not see what follows, or what is above, and what it reads instead."""
    if cut is None or message.id not in cut.marks:
        return ""
    mark = f'<p class="cut">{cut.marks[message.id]}</p>\n'
    if message.id == cut.end and cut.summary:
        summary = f'<div class="plain" dir="auto">{escape(clean(cut.summary))}</div>'
        mark += f"<details><summary>Summary in their place</summary>{summary}</details>\n"
    return mark


def _section(message: Message) -> str:
    parts = [f"<h2>{escape(speaker(message))}{_time(message)}</h2>"]
    if message.reasoning.strip():
        thought = escape(clean(message.reasoning).strip())
        parts.append(f'<details><summary>Thoughts</summary><div class="plain" dir="auto">{thought}</div></details>')
    for attachment in message.attachments:
        name, text = escape(clean(attachment.name)), escape(clean(attachment.text))
        parts.append(f"<details><summary>{name}</summary><pre>{text}</pre></details>")
    if message.content.strip():
        parts.append(_content(message))
    if ending := ending_of(message):
        parts.append(f'<p class="ending">({escape(clean(ending))})</p>')
    return f"<section>{''.join(parts)}</section>"


def _content(message: Message) -> str:
    """Answers as the Markdown that they are, everything else as it was typed."""
    text = clean(message.content).strip("\n")
    if message.role == "assistant":
        return f'<div class="answer" dir="auto">{_renderer().render(text)}</div>'
    return f'<div class="plain {escape(message.role)}" dir="auto">{escape(text)}</div>'


def _renderer() -> Any:
    """Markdown to HTML. HTML in a text stays text, and pictures, which a page would fetch, stay what was written."""
    from markdown_it import MarkdownIt  # a tenth of a second

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(["image"])


def _time(message: Message) -> str:
    if not 0 < message.created < 4e9:
        return ""
    return f" <time>{time.strftime('%Y-%m-%d %H:%M', time.localtime(message.created))}</time>"
