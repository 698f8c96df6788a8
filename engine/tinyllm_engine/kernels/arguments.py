"""Argument layouts that several kernels share."""

from tinyllm_engine.jit import layout

BATCH = 512  # rows of a pass at most

# out[row, n] = weight_scale * sum_k weights[n, k] * x[row, k] + bias[n] + residual[row, n]
MATMUL = layout(
    "weights",  # address of the first stored row, in the mapped file
    "row_bytes",
    "rows",  # outputs, dims[1] of the tensor
    "columns",  # inputs, dims[0] of the tensor
    "x",  # float32 [count, columns], for float weights
    "codes",  # quantized x, see quantize.Codes
    "scales",
    "sums",
    "half_sums",
    "copy_bytes",  # stride of the per-thread copies of x or its codes; 0: all threads share one
    "out",  # float32 [count, rows]
    "bias",  # float32 [rows], or 0
    "residual",  # float32 [count, rows], may be out itself, or 0
    "weight_scale:f",
    "count",  # address of the number of rows in force
    "cancel",  # address of the address of the cancel flag
    "scratch",  # per-thread memory for packed panels
    "scratch_bytes",
)
