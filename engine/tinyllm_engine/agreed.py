"""Numbers that kernels and the text around them agree on. Reading them takes no compiler."""

UNIT = 32  # elements of a row that stay together when threads divide it: one block of quantized activations
TILE = 4  # rows of a batch that a product takes at a time: buffers are filled up to a multiple of it

# what becomes of a router's scores, as the key expert_gating_func numbers it
SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN, SQRT_SOFTPLUS = 1, 2, 3, 4

F32_MAX = (2 - 2.0**-23) * 2.0**127  # the highest float32
GREEDY_BELOW = 1e-5  # a temperature under this always takes the highest logit: dividing by it would overflow
