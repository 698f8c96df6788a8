"""`tinyllm-chat serve`: the same screen in a browser, by textual-serve. Every page opened is a chat of its own."""

from __future__ import annotations

import ipaddress
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from tinyllm_chat.cli.answer import note
from tinyllm_chat.cli.failure import Failure

if TYPE_CHECKING:
    from aiohttp import web

LOOPBACK, PORT = "127.0.0.1", 8000
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@click.command("serve", context_settings={"ignore_unknown_options": True})
@click.option("--host", default=LOOPBACK, show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=PORT, show_default=True)
@click.option("--public-url", metavar="URL", help="What browsers call it, where that is not http://HOST:PORT.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[MODEL] [FLAGS]")
def command(host: str, port: int, public_url: str | None, arguments: tuple[str, ...]) -> None:
    """Shows the chat in a browser. MODEL and FLAGS are those of tinyllm-chat."""
    try:
        from textual_serve.server import Server
    except ImportError:
        raise Failure("the browser needs an extra package: pip install textual-serve") from None
    local = is_loopback(host)
    url = public_url or f"http://{_bracketed(host if not _is_wildcard(host) else socket.gethostname())}:{port}"
    if not local:
        note(
            f"warning: whoever reaches {host} port {port} can chat here, read your chats and open files of yours: "
            "there is no password, and nothing is encrypted"
        )

    class Served(Server):
        async def _make_app(self) -> web.Application:
            application = await super()._make_app()
            application.middlewares.append(own_pages_only(local, url))
            return application

        async def on_startup(self, app: web.Application) -> None:
            click.echo(f"The chat is at {url}; Ctrl+C ends it.")

        def initialize_logging(self) -> None:
            """Nothing of every request is printed."""

    program = [sys.executable, "-m", "tinyllm_chat", *arguments]
    Served(shlex.join(program), host=host, port=port, title="tinyllm-chat", public_url=url).serve()


def is_loopback(host: str) -> bool:
    """Nobody but this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_own(local: bool, url: str, host: str, origin: str | None) -> bool:
    """May a request to `host` from a page of `origin` be answered?

    A page of somebody else, open in the same browser, may not steer the chat: neither directly nor by a name of its own
    that it has made to mean this machine.
    """
    name = urlsplit(f"//{host}").hostname or ""
    if local and name not in (*_LOCAL_NAMES, urlsplit(url).hostname):
        return False
    if origin is None:
        return True
    page = urlsplit(origin)
    known = urlsplit(url)
    if local and page.hostname in _LOCAL_NAMES:
        return page.port == (urlsplit(f"//{host}").port or known.port)
    return page.netloc in (host, known.netloc)


def own_pages_only(local: bool, url: str) -> Any:
    from aiohttp import web

    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            allowed = is_own(local, url, request.host, request.headers.get("Origin"))
        except ValueError:
            allowed = False
        if not allowed:
            raise web.HTTPForbidden(text="this chat answers its own page only")
        return await handler(request)

    return check
