"""Inference engine for GGUF models in Python and Numba: tokens, weights, KV cache, sampling. Knows no chat, no screen."""
