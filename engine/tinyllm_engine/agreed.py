"""Numbers that kernels and the text around them agree on. Reading them takes no compiler."""

UNIT = 32  # elements of a row that stay together when threads divide it: one block of quantized activations

# what becomes of a router's scores, as the key expert_gating_func numbers it
SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN, SQRT_SOFTPLUS = 1, 2, 3, 4
