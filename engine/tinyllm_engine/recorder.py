"""Recorder: arithmetic that is written down instead of done.

Each method appends the op that will compute it, choosing the kernel once: by the type of the weight, by the type of
the cache, and by whether the program is for one row (decode) or for a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np

from tinyllm_engine.adapter_ops import AdapterOps
from tinyllm_engine.agreed import TILE
from tinyllm_engine.batch_state import State
from tinyllm_engine.errors import UnsupportedModelError
from tinyllm_engine.expert_ops import Choice, ExpertOps
from tinyllm_engine.jit import Kernel, Step
from tinyllm_engine.kernels import append, attention, cached_keys, cached_values, elementwise, embed, matmul, matvec
from tinyllm_engine.kernels import norm as norms
from tinyllm_engine.kernels import rope as rope_kernels
from tinyllm_engine.kernels.quantize import Codes, quantize
from tinyllm_engine.kv_cache import KVCache
from tinyllm_engine.memory import aligned
from tinyllm_engine.parts.attention import Scoring, Temperature
from tinyllm_engine.parts.base import Linear, Norm
from tinyllm_engine.parts.feed_forward import XIELU
from tinyllm_engine.program import ALL, CODE_FIELDS, Buffer, CodesBuffer, Op, Program
from tinyllm_engine.recurrent_ops import RecurrentOps
from tinyllm_engine.rope import Rope
from tinyllm_engine.stream_ops import StreamOps
from tinyllm_engine.tensor import TensorView

FLOAT_TYPES = ("F64", "F32", "F16", "BF16")
ONE_MATRIX: dict[str, Any] = dict.fromkeys(("groups", "matrix_bytes", "matrix_scales", "x_step", "out_step"), 0)
GATED = {
    "silu": elementwise.swiglu,
    "gelu": elementwise.geglu,
    "relu": elementwise.reglu,
    "limited_silu": elementwise.limited_swiglu,
}
ALONE = {"gelu": elementwise.gelu, "relu2": elementwise.relu_squared}


def kernel_for(module: ModuleType, tensor: TensorView) -> Kernel:
    """A module's kernel for a weight's type; UnsupportedModelError names tensor and type."""
    operation = module.__name__.rsplit(".", 1)[1]
    kernel = getattr(module, f"{operation}_{tensor.type.name.lower()}", None)
    if kernel is None:
        raise UnsupportedModelError(f"tensor {tensor.name!r}: no {operation} kernel for type {tensor.type.name}")
    return kernel


class Recorder(ExpertOps, RecurrentOps, AdapterOps, StreamOps):
    """Records one program over shared state, cache and scratch memory."""

    def __init__(
        self, state: State, cache: KVCache, context_length: int, threads: int, cancel: int, rows: int, outputs: int
    ):
        self.program = Program()
        self.state, self.cache, self.threads = state, cache, threads
        self.context_length = context_length
        self.rows, self.max_outputs = rows, outputs
        self.one_row = rows == 1
        self._cancel = cancel
        self._buffers: dict[tuple[str, int, bool], Buffer] = {}
        self._count: dict[Buffer, int] = {}  # buffer -> address of the number of rows it holds
        self._codes: dict[Buffer, CodesBuffer] = {}
        self._fresh: set[Buffer] = set()  # buffers whose codes are those of their present contents
        self._tables: dict[Rope, Buffer] = {}
        self._choices: dict[tuple[int, int], Choice] = {}
        self._panels = aligned((threads, matmul.SCRATCH_BYTES), np.uint8)
        self._attention_scratch: np.ndarray | None = None
        self._parts: Buffer | None = None
        self._cache_parts = [Buffer(f"cache {layer}", np.empty(0)) for layer in range(len(cache.layers))]

    # --- memory ---

    def buffer(self, name: str, columns: int, outputs: bool = False) -> Buffer:
        """float32 [rows, columns], or as many rows as can have logits. The same one for the same name and size."""
        key = name, columns, outputs
        if key not in self._buffers:
            rows = self.max_outputs if outputs else self.rows
            padded = rows if self.one_row else -(-rows // TILE) * TILE
            self._buffers[key] = Buffer(name, aligned((padded, columns)))
        return self._buffers[key]

    def _append(
        self,
        kind: str,
        kernel: Kernel,
        reads: dict[Any, str],
        writes: dict[Any, str],
        keep: tuple[Any, ...] = (),
        **fields: Any,
    ) -> None:
        self.program.append(Op(kind, kernel, fields, reads, writes, keep=keep))
        self._fresh -= set(writes)

    def _rows_of(self, out: Buffer, source: Buffer) -> int:
        """The address of the row count of an op that reads `source`; `out` holds as many rows from now on."""
        self._count[out] = self._count.get(source, self.state.rows_address)
        return self._count[out]

    def _columns(self, buffer: Buffer) -> int:
        return buffer.array.shape[1]

    # --- operations ---

    def embed(self, out: Buffer, weight: TensorView) -> None:
        """out[row] = weight[token of row]"""
        self._take_rows(out, weight, self.state.tokens)

    def embed_positions(self, out: Buffer, weight: TensorView) -> None:
        """out[row] = weight[position of row]"""
        self._take_rows(out, weight, self.state.positions)

    def _take_rows(self, out: Buffer, weight: TensorView, ids: np.ndarray) -> None:
        self._append(
            "embed",
            kernel_for(embed, weight),
            {},
            {out: ALL},
            keep=(weight,),
            weights=weight.address,
            row_bytes=weight.row_bytes,
            columns=weight.dims[0],
            tokens=ids.ctypes.data,
            count=self.state.rows_address,
            out=out,
        )

    def outputs(self, x: Buffer) -> Buffer:
        """The rows of x whose logits are wanted, in a buffer of their own."""
        if self.one_row:
            return x
        out = self.buffer(f"{x.name}_out", self._columns(x), outputs=True)
        self._count[out] = self.state.outputs_address
        self._append(
            "outputs",
            embed.select_rows,
            {x: ALL},
            {out: ALL},
            x=x,
            columns=self._columns(x),
            first=self.state.first_output_address,
            count=self.state.outputs_address,
            out=out,
        )
        return out

    def norm(self, out: Buffer, x: Buffer, norm: Norm) -> None:
        """out = the norm of x; out and x are not the same"""
        rms = norm.kind == "rms"
        fields = {} if rms else {"bias": norm.bias.ctypes.data}
        self._append(
            "norm",
            norms.rms_norm if rms else norms.layer_norm,
            {x: ALL},
            {out: f"columns {len(norm.weight)}" if self.one_row else ALL},
            keep=(norm,),
            x=x,
            weight=norm.weight.ctypes.data,
            columns=len(norm.weight),
            epsilon=norm.epsilon,
            count=self._rows_of(out, x),
            out=out,
            **fields,
        )

    def norm_heads(self, x: Buffer, heads: int, norm: Norm) -> None:
        """Each head of x becomes its norm."""
        part, size = f"{heads} heads", self._columns(x) // heads
        self._append(
            "norm",
            norms.rms_norm_heads if norm.kind == "rms" else norms.layer_norm_heads,
            {x: part},
            {x: part},
            keep=(norm,),
            x=x,
            heads=heads,
            head_size=size,
            weight=norm.weight.ctypes.data,
            bias=norm.bias.ctypes.data,
            stride=size if len(norm.weight) > size else 0,
            epsilon=norm.epsilon,
            count=self.state.rows_address,
        )

    def matmul(self, out: Buffer, linear: Linear, x: Buffer) -> None:
        """out = scale * (W x) + bias, and what adapters add"""
        weight, bias = linear.weight, linear.bias
        self._product(
            out,
            weight,
            x,
            part=f"columns {linear.outputs}",
            keep=(bias,),
            weights=weight.address,
            rows=linear.outputs,
            **ONE_MATRIX,
            x_stride=linear.inputs,
            out_stride=linear.outputs,
            bias=0 if bias is None else bias.ctypes.data,
            weight_scale=linear.scale,
            count=self._rows_of(out, x),
        )
        for change in linear.adapters:
            self.add_low_rank(out, change, x)

    def _product(
        self,
        out: Buffer,
        weight: TensorView,
        x: Buffer,
        part: str,
        keep: tuple[Any, ...] = (),
        reads: Iterable[Buffer] = (),
        **fields: Any,
    ) -> None:
        """A product with a matrix, or several, of one tensor, by the kernel for its type."""
        kernel = kernel_for(
            matvec if self.one_row else matmul, weight
        )  # first of all: it refuses types it has none for
        is_float = weight.type.name in FLOAT_TYPES
        source: Buffer | CodesBuffer = x if is_float else self._quantized(x)
        codes = dict.fromkeys(CODE_FIELDS, 0) if isinstance(source, Buffer) else source.fields()
        self._append(
            "matmul",
            kernel,
            {source: ALL, **dict.fromkeys(reads, ALL)},
            {out: part},
            keep=(weight, self._panels, *keep),
            row_bytes=weight.row_bytes,
            columns=weight.dims[0],
            x=x,
            **codes,
            copy_bytes=0,
            out=out,
            residual=0,
            cancel=self._cancel,
            scratch=self._panels.ctypes.data,
            scratch_bytes=matmul.SCRATCH_BYTES,
            **fields,
        )

    def _quantized(self, x: Buffer) -> CodesBuffer:
        """The codes of x, computed once for all matrices that x meets."""
        if x not in self._codes:
            self._codes[x] = CodesBuffer(f"{x.name} codes", Codes(*x.array.shape))
        codes = self._codes[x]
        if x not in self._fresh:
            columns = self._columns(x)
            self._append(
                "quantize",
                quantize,
                {x: f"columns {columns}"},
                {codes: f"columns {columns}"},
                x=x,
                columns=columns,
                count=self._count.get(x, self.state.rows_address),
                **codes.fields(),
            )
            self._fresh.add(x)
        return codes

    def add(self, out: Buffer, x: Buffer) -> None:
        """out += x"""
        columns = self._columns(x)
        part = f"columns {columns}"
        self._append(
            "add",
            elementwise.add_rows,
            {x: part, out: part},
            {out: part},
            out=out,
            x=x,
            columns=columns,
            count=self._rows_of(out, x),
        )

    def activate(self, x: Buffer, up: Buffer | None, activation: str | XIELU) -> None:
        """x = activation(x), times up where there is one"""
        if isinstance(activation, XIELU):
            self._change("activation", elementwise.xielu, x, **vars(activation))
            return
        part = f"columns {self._columns(x)}"
        self._append(
            "activation",
            (ALONE if up is None else GATED)[activation],
            {x: part} if up is None else {x: part, up: part},
            {x: part},
            gate=x,
            up=up or 0,
            columns=self._columns(x),
            count=self._rows_of(x, up or x),
            out=x,
        )

    def scale(self, x: Buffer, factor: float) -> None:
        """x *= factor"""
        self._change("scale", elementwise.scale_rows, x, factor=factor)

    def clamp(self, x: Buffer, limit: float) -> None:
        """x to -limit .. limit"""
        self._change("clamp", elementwise.clamp_rows, x, limit=limit)

    def divide(self, x: Buffer, divisor: np.ndarray) -> None:
        """Every row of x by the float32 [columns]."""
        self._change("divide", elementwise.divide_columns, x, (divisor,), divisor=divisor.ctypes.data)

    def softcap(self, x: Buffer, cap: float) -> None:
        """x = cap * tanh(x / cap)"""
        self._change("softcap", elementwise.softcap_rows, x, cap=cap)

    def temperature(self, x: Buffer, temperature: Temperature) -> None:
        """Every row of x times what its position makes of the temperature."""
        positions = self.state.positions.ctypes.data
        factor, period = temperature.scale, temperature.period
        self._change("temperature", elementwise.temperature_rows, x, factor=factor, period=period, positions=positions)

    def _change(self, kind: str, kernel: Kernel, x: Buffer, keep: tuple[Any, ...] = (), **fields: Any) -> None:
        """An op that changes x in place, each thread its own columns."""
        columns = self._columns(x)
        part = f"columns {columns}"
        fields |= {"x": x, "columns": columns, "count": self._rows_of(x, x)}
        self._append(kind, kernel, {x: part}, {x: part}, keep, **fields)

    def rope_table(self, rope: Rope) -> None:
        """cos and sin of every row's position, for all rotations by `rope` that follow."""
        frequencies, magnitude = rope.frequencies(self.context_length)
        pairs = len(frequencies)
        self._tables[rope] = table = Buffer("rope", aligned((self.rows, 2 * pairs)))
        self._append(
            "rope_table",
            rope_kernels.rope_table,
            {},
            {table: ALL},
            keep=(frequencies,),
            frequencies=frequencies.ctypes.data,
            pairs=pairs,
            magnitude=magnitude,
            positions=self.state.positions.ctypes.data,
            count=self.state.rows_address,
            table=table,
        )

    def rope(self, x: Buffer, heads: int, rope: Rope, first: int = 0) -> None:
        """Rotates every head of x, from its element `first` on, by its row's position; `rope_table` comes first."""
        table = self._tables[rope]
        part = f"{heads} heads"
        self._append(
            "rope",
            rope_kernels.rope,
            {x: part, table: ALL},
            {x: part},
            keep=(x,),
            x=x.address + 4 * first,
            heads=heads,
            head_size=self._columns(x) // heads,
            pairs=self._columns(table) // 2,
            interleaved=int(rope.interleaved),
            table=table,
            count=self.state.rows_address,
        )

    def append(self, layer: int, k: Buffer, v: Buffer) -> None:
        """Writes K and V of every row into the cache at the row's position."""
        shape, cache = self.cache.layers[layer], self.cache
        part = f"{shape.heads} heads"
        exact = cache.exact
        for name, x, size, kind, pages, page_bytes, exact_pages, exact_bytes in (
            (
                *("k", k, shape.k_size, cache.k_type, cache.k_address(layer), cache.k_page_bytes[layer]),
                *(exact.k_address(layer), exact.k_page_bytes[layer]),
            ),
            (
                *("v", v, shape.v_size, cache.v_type, cache.v_address(layer), cache.v_page_bytes[layer]),
                *(exact.v_address(layer), exact.v_page_bytes[layer]),
            ),
        ):
            self._append(
                "append",
                getattr(append, f"append_{name}_{kind.name}"),
                {x: part},
                {self._cached(layer): part},
                x=x,
                heads=shape.heads,
                size=size,
                pages=pages,
                page_bytes=page_bytes,
                exact=exact_pages,
                exact_bytes=exact_bytes,
                positions=self.state.positions.ctypes.data,
                tables=self.state.tables.ctypes.data,
                count=self.state.rows_address,
            )

    def attention(self, out: Buffer, q: Buffer, layer: int, heads: int, scoring: Scoring) -> None:
        """out = softmax(scores of q and K, causal) V, for every row and head"""
        shape, cache = self.cache.layers[layer], self.cache
        floats = attention.scratch_floats(heads, shape.heads, shape.k_size, shape.v_size)
        if self._attention_scratch is None or self._attention_scratch.shape[1] < floats:
            self._attention_scratch = aligned((self.threads, floats))
        runs = attention.max_runs(self.context_length) if self.one_row else 0
        if self._parts is None or self._parts.array.size < heads * runs * (2 + shape.v_size):
            self._parts = Buffer("runs", aligned((heads * runs, 2 + shape.v_size)))
        fields = {
            "q": q,
            "heads": heads,
            "kv_heads": shape.heads,
            "k_size": shape.k_size,
            "v_size": shape.v_size,
            "scale": scoring.scale,
            "window": scoring.window,
            "softcap": scoring.softcap,
            "slopes": 0 if scoring.slopes is None else scoring.slopes.ctypes.data,
            "sinks": 0 if scoring.sinks is None else scoring.sinks.ctypes.data,
            "k_pages": cache.k_address(layer),
            "v_pages": cache.v_address(layer),
            "k_page_bytes": cache.k_page_bytes[layer],
            "v_page_bytes": cache.v_page_bytes[layer],
            "k_exact": cache.exact.k_address(layer),
            "v_exact": cache.exact.v_address(layer),
            "k_exact_bytes": cache.exact.k_page_bytes[layer],
            "v_exact_bytes": cache.exact.v_page_bytes[layer],
            **self._steps(),
            "positions": self.state.positions.ctypes.data,
            "tables": self.state.tables.ctypes.data,
            "count": self.state.rows_address,
            "cancel": self._cancel,
            "parts": self._parts,
            "scratch": self._attention_scratch.ctypes.data,
            "scratch_bytes": self._attention_scratch.strides[0],
            "out": out,
        }
        keep = (self._attention_scratch, scoring)
        reads = {q: ALL, self._cached(layer): ALL}
        if self.one_row:
            self._append("attention", attention.attend_one, reads, {self._parts: ALL}, keep, **fields)
            self._append("merge", attention.merge_runs, {self._parts: ALL}, {out: f"{heads} heads"}, keep, **fields)
        else:
            self._append("attention", attention.attend_many, reads, {out: ALL}, keep, **fields)

    def _steps(self) -> dict[str, Step | int]:
        """What attention does with the types of K and V: a batch unpacks a page of half floats for all its rows."""
        k_type, v_type = self.cache.k_type, self.cache.v_type
        k_unpack, scores = self._steps_of(k_type.name, cached_keys, "scores")
        v_unpack, values = self._steps_of(v_type.name, cached_values, "values")
        unpack, exact_scores = self._steps_of(k_type.exact, cached_keys, "scores")
        other_unpack, exact_values = self._steps_of(v_type.exact, cached_values, "values")
        return {
            "k_unpack": k_unpack,
            "v_unpack": v_unpack,
            "scores": scores,
            "values": values,
            "exact_unpack": unpack or other_unpack,
            "exact_scores": exact_scores,
            "exact_values": exact_values,
            "k_coded": int(k_type.k_turned),
            "v_turned": int(v_type.is_quantized),
        }

    def _steps_of(self, kind: str, module: ModuleType, name: str) -> tuple[Step | int, Step | int]:
        """What unpacks a page of a type first, or 0, and what scores it or sums its values."""
        if not kind:
            return 0, 0
        unpack = None if self.one_row else getattr(cached_values, f"unpack_{kind}", None)
        return unpack or 0, getattr(module, f"{name}_{'f32' if unpack else kind}")

    def _cached(self, layer: int) -> Buffer:
        """Stands for the layer's part of the cache where accesses are compared."""
        return self._cache_parts[layer]
