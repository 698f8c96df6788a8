"""Runner and Sequence: a model, its cache and its two recorded programs, one for a single row and one for a batch."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import replace

import numpy as np

from tinyllm_engine.agreed import TILE
from tinyllm_engine.batch_state import State
from tinyllm_engine.cached_rows import reopen
from tinyllm_engine.cached_types import PAGE
from tinyllm_engine.cancel import Cancel
from tinyllm_engine.decode import Decoder, Drawn, draw_one
from tinyllm_engine.errors import (
    CancelledError,
    ContextFullError,
    EngineError,
    GGUFError,
    ModelError,
    TokenizerError,
    UnsupportedModelError,
)
from tinyllm_engine.forward import forward
from tinyllm_engine.fusion import batch_rules, one_row_rules
from tinyllm_engine.jit import remove_old_folders
from tinyllm_engine.kernels.arguments import BATCH
from tinyllm_engine.kernels.decode import CHANGED, REFUSED, UNDRAWN, decode_tokens
from tinyllm_engine.kernels.sample import sample_few, scan
from tinyllm_engine.kv_cache import KVCache, PageTable
from tinyllm_engine.model import Model, Progress
from tinyllm_engine.preparation import prepare
from tinyllm_engine.processors import default_threads
from tinyllm_engine.profile import SAMPLING, Profile, profile_of
from tinyllm_engine.program import Program
from tinyllm_engine.recorder import Recorder
from tinyllm_engine.recurrent_state import RecurrentState
from tinyllm_engine.sampling.native import NativeSampler
from tinyllm_engine.shift import check_shift, check_windows, move_down
from tinyllm_engine.team import CANCEL, Team, follow, lead
from tinyllm_engine.weights import Weights, check_sizes
from tinyllm_engine.windows import Places, pages_of, runs

OUTPUTS = 64  # rows of a pass that can have logits when all of them are wanted


class Runner:
    """Runs one model. Not for several threads at once.

    context_length: tokens a sequence can hold; the model's own length by default
    kv_type: type of the cache: f32, f16, bf16, q8_0 or q4_0; k_type, v_type: that of keys or of values alone
    threads: default: min(usable processors, cgroup quota, physical cores)
    progress: called with (stage, done, total) while kernels are compiled or loaded
    fuse: whether neighbouring ops become one, which changes no result; False shows each by itself

    Raises UnsupportedModelError and ModelError for weights it cannot run, OutOfMemoryError, GGUFError if the file has
    changed.

    >>> runner = Runner(model, context_length=256, k_type="f32", threads=1)
    >>> runner.kv_bytes_per_token, runner.context_length
    (384, 256)
    >>> runner.close()
    """

    def __init__(
        self,
        model: Model,
        context_length: int | None = None,
        kv_type: str = "f16",
        threads: int | None = None,
        progress: Progress | None = None,
        fuse: bool = True,
        k_type: str | None = None,
        v_type: str | None = None,
    ):
        self.model = model
        self.context_length = context_length or model.config.context_length
        self.k_type, self.v_type = k_type or kv_type, v_type or kv_type
        self.threads = threads or default_threads()
        model.guard()
        weights = model.weights
        check_sizes(model.config, model.path)
        self._check_positions(weights)
        self.vocab_size = weights.output.outputs
        self.cache = KVCache(
            weights.cached,
            self.context_length,
            self.k_type,
            states=[layer.state_size for layer in weights.layers],
            v_type=self.v_type,
        )
        self.team = Team(self.threads)
        self.state = State(min(BATCH, -(-self.context_length // TILE) * TILE))
        self._decode, self._decode_logits = self._record(1, 1, fuse)
        self._prefill, self._prefill_logits = self._record(self.state.max_rows, min(OUTPUTS, self.state.max_rows), fuse)
        self._compile(progress)
        self.decoder = Decoder(self.team, self.state)
        self._first: Sequence | None = None
        self._clocks: dict[Program, np.ndarray] = {}
        model.check()

    def _check_positions(self, weights: Weights) -> None:
        """Learned positions end where the model's own context does."""
        table = weights.position_embd
        if table is not None and self.context_length > table.rows:
            raise UnsupportedModelError(
                f"{self.model.path}: context: the model has {table.rows} positions, asked for {self.context_length}"
            )

    def profile(self, on: bool) -> list[tuple[Program, np.ndarray]]:
        """Starts or stops the clocks; returns what has been measured: int64 [ops, 2] nanoseconds per program."""
        measured = list(self._clocks.items())
        programs = (self._decode, self._prefill) if on else ()
        self._clocks = {program: np.zeros((len(program.ops), 2), np.int64) for program in programs}
        return measured

    def written_profile(self, tokens: int, seconds: float) -> Profile:
        """Where the time of writing `tokens` one by one in so many seconds went, since the clocks were started.

        Shares only: what was read for each token is not counted.
        """
        clocks = self._clocks.get(self._decode)
        measured = [] if clocks is None else [(self._decode, clocks)]
        found = profile_of(measured, [()] * len(measured), self.state.outputs_address, seconds, SAMPLING)
        return replace(found, tokens=tokens)

    def _record(self, rows: int, outputs: int, fuse: bool) -> tuple[Program, np.ndarray]:
        cancel = self.team.address(CANCEL)
        p = Recorder(self.state, self.cache, self.context_length, self.threads, cancel, rows, outputs)
        logits = forward(p, self.model)
        program = p.program
        if fuse:
            program = program.fuse(one_row_rules(self.threads) if rows == 1 else batch_rules())
        return program, logits.array

    def _compile(self, progress: Progress | None) -> None:
        drawing = [decode_tokens, scan, sample_few]
        prepare([lead, follow, *drawing, *self._decode.kernels, *self._prefill.kernels], progress)
        try:
            self._decode.freeze()
            self._prefill.freeze()
        except OverflowError as error:  # a scale made of several keys, or the inverse of one
            raise ModelError(f"{self.model.path}: {error}") from None
        remove_old_folders()

    @property
    def kv_bytes_per_token(self) -> int:
        """What the cache takes for each token, all layers together."""
        return self.cache.bytes_per_token

    @property
    def state_bytes(self) -> int:
        """What a sequence takes at most besides keys and values: its recurrent state and the checkpoints of that."""
        return self.cache.states.most_bytes

    def sequence(self) -> Sequence:
        """Sequence 0: the one the runner's own forward, position, tokens and truncate speak of."""
        if self._first is None:
            self._first = Sequence(self)
        return self._first

    def new_sequence(self) -> Sequence:
        """An empty sequence beside the others. All share the cache's pages, which are enough for one full context."""
        return Sequence(self)

    @property
    def position(self) -> int:
        return self.sequence().position

    @property
    def tokens(self) -> list[int]:
        return self.sequence().tokens

    def forward(self, ids: Ids[int], all_logits: bool = False) -> np.ndarray:
        return self.sequence().forward(ids, all_logits)

    def truncate(self, length: int) -> int:
        return self.sequence().truncate(length)

    def close(self) -> None:
        """Ends the threads."""
        self.team.close()

    def set_rows(self, sequence: Sequence, ids: Ids[int], all_logits: bool) -> tuple[Program, np.ndarray]:
        """Makes up to BATCH ids of a sequence, whose pages are there, the rows of the next pass.

        Returns its program and the logits it will write: float32 [1, vocabulary] after the last id, or
        [n, vocabulary] after each.
        """
        n, state = len(ids), self.state
        state.tokens[:n] = ids
        state.positions[:n] = np.arange(sequence.position, sequence.position + n)
        state.tables[:n] = sequence.pages.table.ctypes.data
        source, target, _ = sequence.recurrent.addresses()
        state.sources[0], state.sources[1:n], state.targets[:n] = source, target, target
        state.set_rows(n, first_output=0 if all_logits else n - 1)
        program, logits = (self._decode, self._decode_logits) if n == 1 else (self._prefill, self._prefill_logits)
        return program, logits[: n if all_logits else 1]

    def run_rows(self, sequence: Sequence, ids: Ids[int], all_logits: bool, cancel: Cancel | None) -> np.ndarray | None:
        """One pass over the rows of `set_rows`. Returns a view of the logits, None when cancelled."""
        program, logits = self.set_rows(sequence, ids, all_logits)
        return logits if self.team.run(program.freeze(), cancel, self._clocks.get(program)) else None

    def load_row(self, sequence: Sequence, token: int, cancel: Cancel | None) -> np.ndarray:
        """Prepares one-row passes that begin with this token at the sequence's end; returns where the logits go."""
        program, logits = self.set_rows(sequence, [token], all_logits=False)
        self.team.load(program.freeze(), cancel, self._clocks.get(program))
        return logits[0]


class Sequence:
    """One sequence of tokens in the cache. `fork` makes others that share its pages.

    >>> sequence = runner.new_sequence()
    >>> logits = sequence.forward(prompt)  # after its last token
    >>> logits.shape, sequence.position == len(prompt)
    ((258,), True)
    >>> other = sequence.fork(4)  # its first tokens, nothing is computed
    >>> bool((other.forward(prompt[4:]) == logits).all())  # the same bits, however they came about
    True
    >>> sequence.truncate(2), sequence.tokens == prompt[:2]
    (2, True)
    """

    def __init__(self, runner: Runner):
        self.runner = runner
        self.pages = PageTable(runner.cache, runner.context_length)
        self.places = Places(runner.cache.windows)
        self.recurrent = RecurrentState(runner.cache.states)
        self.tokens: list[int] = []
        self._exact: int | None = None
        self._reading = False  # several tokens at a time, as opposed to writing them one by one

    @property
    def position(self) -> int:
        """Tokens in the cache."""
        return len(self.tokens)

    @property
    def exact(self) -> int:
        """So many tokens from the first one on are as a fresh evaluation would have them: all, but after `remove`."""
        return self.position if self._exact is None else self._exact

    @property
    def context_length(self) -> int:
        return self.runner.context_length

    @property
    def is_recurrent(self) -> bool:
        """Whether `truncate` goes back to kept states only."""
        return self.runner.cache.states.block_bytes > 0

    @property
    def held_rows(self) -> list[tuple[int, int]]:
        """What layers with a window still have: (first token, behind the last); all where they have none."""
        return [
            (first * PAGE, min(end * PAGE, self.position)) for first, end in runs(self.pages.held[: self.pages.count])
        ]

    def forward(
        self,
        ids: Ids[int],
        all_logits: bool = False,
        cancel: Cancel | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:
        """Appends ids and returns float32 [vocabulary] after the last one, or [n, vocabulary] after each.

        Raises ContextFullError before anything is evaluated if they do not fit, TokenizerError for an id outside the
        vocabulary, CancelledError when `cancel` was set (complete batches stay; `tokens` says which), GGUFError if the
        model's file has changed, OutOfMemoryError (complete batches stay).
        """
        ids = list(ids)
        self._check(ids)
        self.runner.model.check_unchanged()
        self._begin(reading=len(ids) > 1)
        step = min(OUTPUTS, self.runner.state.max_rows) if all_logits else self.runner.state.max_rows
        kept: list[np.ndarray] = []
        logits = None
        self._reserve(len(ids))
        for start in range(0, len(ids), step):
            batch = ids[start : start + step]
            self._hold(len(batch))
            logits = self.runner.run_rows(self, batch, all_logits, cancel)
            if logits is None:
                self.pages.shrink(self.position)
                raise CancelledError(f"cancelled after {start} of {len(ids)} tokens")
            self._check_read()
            self.extend(batch)
            self._release()
            if all_logits:
                kept.append(logits.copy())
            if progress is not None:
                progress(start + len(batch), len(ids))
        assert logits is not None
        return np.concatenate(kept) if all_logits else logits[0].copy()

    def _check(self, ids: list[int]) -> None:
        if not ids:
            raise EngineError("forward: expected at least one token id, found none")
        room = self.context_length - self.position
        if len(ids) > room:
            raise ContextFullError(f"context: {len(ids)} tokens do not fit, {room} of {self.context_length} are free")
        vocabulary = self.runner.vocab_size
        for token in ids:
            if not 0 <= token < vocabulary:
                raise TokenizerError(f"token id: expected 0 to {vocabulary - 1}, found {token}")

    def _check_read(self) -> None:
        """GGUFError, and nothing is taken in, if the pass that is over has read what is no longer in the file."""
        try:
            self.runner.model.check()
        except GGUFError:
            self.pages.shrink(self.position)
            raise

    def decode(
        self, last: int, sampler: NativeSampler, tokens: Ids[int], eog: np.ndarray, count: int, cancel: Cancel | None
    ) -> Drawn:
        """Evaluates `last`, draws the next token, evaluates that, and so on, up to `count` tokens in one native call.

        tokens: all ids so far, `last` included; eog: bool [vocabulary]. Raises ContextFullError if `last` does not fit,
        NonFiniteLogitsError, GGUFError if the model's file has lost something. The last token drawn is not evaluated.
        """
        self._check([last])
        self._begin(reading=False)
        count = min(count, self.context_length - self.position)
        self._reserve(count)
        self._hold(count)
        runner = self.runner
        logits = runner.load_row(self, last, cancel)
        drawn, end = runner.decoder.run(logits, self.recurrent.addresses()[2], sampler, tokens, eog, count)
        self._check_read()
        evaluated = [last, *drawn.ids]
        if end not in (CHANGED, REFUSED, UNDRAWN):
            del evaluated[-1:]
        self.extend(evaluated, passes=len(evaluated))
        self.pages.shrink(self.position)
        self._release()
        if end == REFUSED:
            sampler.refuse(logits)
        if end == CHANGED:
            new = draw_one(sampler, logits, [*tokens, *drawn.ids])
            return Drawn(drawn.ids + new.ids, drawn.logprobs + new.logprobs, drawn.choices + new.choices)
        return drawn

    def _reserve(self, count: int) -> None:
        """Takes pages for so many tokens more; all of them or none. Raises ContextFullError, OutOfMemoryError."""
        try:
            self.pages.own(self.position)
            self.pages.grow(self.position + count)
        except EngineError:
            self.pages.shrink(self.position)
            raise

    def _hold(self, count: int) -> None:
        """Makes room for so many tokens in layers with a window. Raises OutOfMemoryError."""
        try:
            self.pages.hold(pages_of(self.position, self.position + count))
        except EngineError:
            self.pages.shrink(self.position)
            raise

    def _release(self) -> None:
        """Gives back what layers with a window neither see from here on nor have to keep for going back."""
        if self.runner.cache.windows.sizes:
            held = self.pages.held[: self.pages.count]
            self.pages.keep(self.places.kept(self.position, held))

    def extend(self, ids: list[int], passes: int = 1) -> None:
        """Takes in ids that so many complete passes have evaluated."""
        self.tokens += ids
        self.recurrent.advance(passes)
        self.pages.close(self.position, self.recurrent.positions)

    def _begin(self, reading: bool) -> None:
        """Keeps the state before several tokens are read and where they end: that is where one goes back to."""
        if reading or self._reading:
            self.recurrent.keep(self.position)
        if reading != self._reading:
            self.places.add(self.position)
        self._reading = reading

    def truncate(self, length: int) -> int:
        """Forgets the tokens from `length` on; returns the length really kept.

        A model with recurrent layers cannot go back to any length. Its state is kept where a call of `forward` with
        several tokens begins and ends, and it returns to the last such place, if that is not too long ago: then to an
        earlier one, or 0.

        Layers with a window have what they see next at the present end and up to 64 tokens before it, and the same of
        a few places: where calls of `forward` with several tokens began or ended, and where `truncate` was asked to go.
        One returns to the last length up to the one asked for where all of them have what they need, or to 0.

        A cache in q4_0 goes back to any length within the first page of 64 tokens and the last one, and else to where a
        page begins.
        """
        length = max(0, min(length, self.position))
        if length < self.position:
            kept = self.kept_by_truncating(length)
            self.places.go_back(length)
            length = self.recurrent.go_back(kept)
        del self.tokens[length:]
        self.pages.shrink(length)
        if self._exact is not None and length <= self._exact:
            self._exact = None
        return length

    def kept_by_truncating(self, length: int) -> int:
        """What `truncate` and `fork` would return and keep."""
        if length >= self.position:
            return self.position
        length = max(0, length)
        while True:
            kept = self.pages.longest(length)
            if self.is_recurrent:
                kept = max((position for position in self.recurrent.positions if position <= kept), default=0)
            if kept == length:
                return length
            length = kept

    def fork(self, length: int) -> Sequence:
        """Another sequence that begins with the first `length` tokens of this one; nothing is evaluated for that.

        Both own the pages of these tokens. Whoever writes behind them first copies the last page if it is not full.
        What is kept is what `truncate` would keep: the fork's `position` says how much.
        """
        length = max(0, min(length, self.position))
        fork = Sequence(self.runner)
        fork.places = self.places.fork()
        if length == self.position:
            self.recurrent.keep(length)
        else:
            fork.places.go_back(length)
        fork.recurrent = self.recurrent.fork()
        length = fork.recurrent.go_back(self.kept_by_truncating(length))
        fork.tokens = self.tokens[:length]
        fork.pages = self.pages.fork(length)
        fork._release()
        fork._exact = None if self.exact >= length else self.exact
        return fork

    def remove(self, begin: int, end: int) -> None:
        """Drops the tokens from `begin` to before `end`; those behind move down to their place (see `shift`).

        Raises UnsupportedModelError where keys cannot be moved, or where layers with a window no longer have what they
        would see at the new end, ContextFullError if pages shared with other sequences cannot be copied; nothing has
        changed then.
        """
        if not 0 <= begin <= end <= self.position:
            raise EngineError(f"remove: expected tokens within 0 to {self.position}, found {begin} to {end}")
        check_shift(self.runner.model)
        if begin == end:
            return
        held = check_windows(self.runner.model, self.pages, begin, end, self.position)
        self.pages.own(begin)
        exact = min(self.exact, self.pages.longest(begin))
        if self.pages.longest(begin) < begin:
            reopen(self.runner.cache, int(self.pages.table[begin // PAGE]))
        if end < self.position:
            move_down(self.runner, self.pages, begin, end, self.position, held)
            if self.runner.cache.exact.page_bytes and begin > PAGE:
                exact = min(exact, begin // PAGE * PAGE)  # its page is quantized together with other rows
        self.places.remove(begin, end)
        moved = end < self.position
        del self.tokens[begin:end]
        self._exact = exact if exact < self.position else None
        self.pages.shrink(self.position)
        if moved:
            self.pages.rewritten(begin, self.position)

    def restored(self, ids: list[int], exact: int, places: Ids[int] = ()) -> None:
        """Says what the pages of this new sequence have been filled with, states included."""
        self.tokens = ids
        self.places = Places(self.runner.cache.windows, places)
        self._release()
        self._exact = exact if exact < len(ids) else None

    def close(self) -> None:
        """Gives its pages and states back; it is empty then, and can be used again."""
        self.truncate(0)
        self.recurrent.close()
