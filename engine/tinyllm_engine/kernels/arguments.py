"""Argument layouts that several kernels share."""

from tinyllm_engine.jit import layout

BATCH = 512  # rows of a pass at most

# out[row, n] = weight_scale * sum_k weights[n, k] * x[row, k] + bias[n] + residual[row, n]
# For a stack of matrices (see stacks) this holds group by group.
MATMUL = layout(
    "weights",  # address of the first stored row, in the mapped file
    "row_bytes",
    "rows",  # outputs, dims[1] of the tensor
    "columns",  # inputs, dims[0] of the tensor
    "groups",  # address of the groups, 0: one matrix
    "matrix_bytes",  # from a matrix of the stack to the next
    "matrix_scales",  # float32 [matrices] in place of weight_scale, or 0
    "x_stride",  # elements from a row of x to the next; decode: 0 where all groups share one
    "x_step",  # elements by which x begins further right for the next matrix
    "out_stride",
    "out_step",
    "x",  # float32 [count, x_stride], for float weights
    "codes",  # quantized x, see quantize.Codes
    "scales",
    "sums",
    "half_sums",
    "copy_bytes",  # stride of the per-thread copies of x or its codes; 0: all threads share one
    "out",  # float32 [count, out_stride]
    "bias",  # float32 [matrices, rows], or 0
    "residual",  # float32 [count, out_stride], may be out itself, or 0
    "weight_scale:f",
    "count",  # address of the number of rows in force
    "cancel",  # address of the address of the cancel flag
    "scratch",  # per-thread memory for packed panels
    "scratch_bytes",
)
