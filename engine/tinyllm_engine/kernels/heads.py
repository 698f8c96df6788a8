"""Parts of heads: from where a product left them to where the next one wants them."""

from tinyllm_engine.jit import kernel, layout, record
from tinyllm_engine.simd import load_f32x8, load_i64, store

# out[row, head * out_step + i] = x[row, head * x_step + i] for i < size; both begin at the first such element
COPY_HEADS = layout(
    "x",  # float32 [count, x_stride]
    "x_stride",
    "x_step",  # elements from a head to the next, 0: all heads get the same
    "out",  # float32 [count, out_stride]
    "out_stride",
    "out_step",
    "heads",
    "size",  # elements of each, a multiple of 8
    "count",
)


@kernel(COPY_HEADS)
def copy_heads(thread, threads, pointer):
    """Threads own whole heads."""
    a = record(pointer)
    for row in range(load_i64(a.count)):
        for head in range(a.heads * thread // threads, a.heads * (thread + 1) // threads):
            x = a.x + 4 * (row * a.x_stride + head * a.x_step)
            out = a.out + 4 * (row * a.out_stride + head * a.out_step)
            for i in range(0, 4 * a.size, 32):
                store(out + i, load_f32x8(x + i))
