"""From logits to a token.

    params.py    what decides, checked, and the values that change while a generation runs
    chain.py     llama.cpp's samplers in plain NumPy, each one function, and the order they run in
    dry.py       the DRY sampler: what would repeat
    mirostat.py  the two that steer the surprise
    sampler.py   draws the tokens of one generation
    native.py    the same with machine code

`kernels/sample.py` is the native twin of the common part of the chain and must choose the same tokens.
"""

from tinyllm_engine.sampling.params import SamplingParams as SamplingParams
from tinyllm_engine.sampling.params import SharedSampling as SharedSampling
from tinyllm_engine.sampling.sampler import Sampler as Sampler
