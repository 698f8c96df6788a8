"""Choosing the model: from a list, from a file, or from where it can be downloaded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import get_current_worker

from tinyllm_chat.chat.errors import ChatError, DownloadCancelled, ModelNotFoundError
from tinyllm_chat.tui.models import ModelChoice, ModelSource
from tinyllm_chat.tui.text import clean_line
from tinyllm_chat.tui.widgets.lines import Piece
from tinyllm_chat.tui.widgets.progress import Progress

if TYPE_CHECKING:
    from tinyllm_chat.tui.app import TinyLLMChatApp

DOWNLOAD = "download"  # the group of the worker that fetches a model


class ModelChoosing:
    """One per app; runs on its thread. `models`: what there is to choose from; None: no list."""

    def __init__(self, app: TinyLLMChatApp, models: ModelSource | None) -> None:
        self._app = app
        self._models = models
        self._paths: Sequence[str] | None = None
        self._without: Piece | None = None  # the note that no model is open

    def open(self, path: str) -> None:
        self._app.session.open_model(path)
        self._end_note()
        self._app.feed.opening(path)
        self._app.wake()

    def opened(self, path: str) -> None:
        """Remembers a model that was opened, for the next choice."""
        if (models := self._models) is not None:

            def remember() -> None:
                with contextlib.suppress(OSError):
                    models.opened(path)

            self._app.run_worker(remember, group="remember", thread=True)

    def choose(self) -> None:
        """Lets the user choose."""
        if self._models is None:
            self._app.say("No list of models here: name one on the command line", "warning")
            return
        from tinyllm_chat.tui.picker import ModelScreen

        self._app.push_screen(ModelScreen(self._models), self._chosen)

    def _chosen(self, choice: ModelChoice | None) -> None:
        if choice is not None:
            self.find(choice.path or choice.name)
        elif self._app.session.model is None and self._app.session.loading is None:
            self._end_note()
            self._without = self._app.report("No model is open", "warning", ["model"])

    def _end_note(self) -> None:
        if self._without is not None:
            self._app.pane.remove_note(self._without)
            self._without = None

    # Names

    def paths(self) -> Sequence[str]:
        """Files of the models that are here, as soon as they are known: the first call looks for them."""
        if self._paths is None:
            self._paths = ()
            if self._models is not None:
                self._app.run_worker(partial(self._look_for_models, self._models), thread=True)
        return self._paths

    def _look_for_models(self, models: ModelSource) -> None:
        """On a worker thread: folders may be slow."""
        with contextlib.suppress(ChatError, OSError):
            paths = tuple(choice.path for choice in models.choices() if choice.path is not None)
            self._app.call_from_thread(self._found, paths)

    def _found(self, paths: tuple[str, ...]) -> None:
        self._paths = paths
        self._app.writing.changed()

    # From a name to a model

    def find(self, name: str) -> None:
        """Opens what a name or a path means, downloaded where it is not here. Where that fails, nothing changes."""
        if self._models is None:
            self.open(os.path.expanduser(name))
            return
        self._app.feed.show_progress(Progress.of_stage(f"{clean_line(name)}: looking for it", 0, 0))
        work = partial(self._find, self._models, name)
        self._app.run_worker(work, group=DOWNLOAD, exclusive=True, thread=True)

    def stop_fetching(self) -> None:
        self._app.workers.cancel_group(self._app, DOWNLOAD)

    def _find(self, models: ModelSource, name: str) -> None:
        """On a worker thread. The model in use is given up only for one that can take its place."""
        app, worker = self._app, get_current_worker()

        def progress(stage: str, done: int, total: int) -> None:
            if worker.is_cancelled:
                raise DownloadCancelled(f"the download of {name} was stopped")
            app.call_from_thread(app.feed.show_progress, Progress.of_stage(f"{name}: {stage}", done, total))

        try:
            path = models.find(name, progress)
            if app.session.model is not None and (problem := models.describe(path).problem) is not None:
                raise ModelNotFoundError(f"{path}: {problem}")
        except (ChatError, OSError) as error:
            if app.is_running:
                app.call_from_thread(self._failed, str(error))
        else:
            app.call_from_thread(self.open, path)

    def _failed(self, message: str) -> None:
        self._app.feed.show_progress(None)
        self._app.report(message, "error")
