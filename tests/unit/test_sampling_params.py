"""What decides the next token, checked, and the live values of a running generation."""

import math
import threading

import numpy as np
import pytest
from tinyllm_engine.errors import SamplingError
from tinyllm_engine.sampling import Sampler, SamplingParams, SharedSampling
from tinyllm_engine.sampling.params import SAMPLERS, sampler_names

OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


def test_defaults_are_those_of_the_reference():
    params = SamplingParams()
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (0.8, 40, 0.95, 0.05)
    assert (params.typical_p, params.repeat_penalty, params.repeat_last_n) == (1.0, 1.0, 64)
    assert (params.presence_penalty, params.frequency_penalty, params.seed) == (0.0, 0.0, None)
    assert (params.dry_multiplier, params.dry_base, params.dry_allowed_length) == (0.0, 1.75, 2)
    assert (params.dry_penalty_last_n, params.dry_sequence_breakers) == (64, ("\n", ":", '"', "*"))
    assert (params.xtc_probability, params.xtc_threshold, params.top_n_sigma) == (0.0, 0.1, -1.0)
    assert (params.dynatemp_range, params.dynatemp_exponent) == (0.0, 1.0)
    assert (params.mirostat, params.mirostat_tau, params.mirostat_eta) == (0, 5.0, 0.1)
    order = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
    assert params.samplers == SAMPLERS == order


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperature", -0.1, "temperature: expected a number from 0 to 100, found -0.1"),
        ("temperature", math.nan, "temperature: expected a number from 0 to 100, found nan"),
        ("temperature", "hot", "temperature: expected a number from 0 to 100, found 'hot'"),
        ("top_p", 1.01, "top_p: expected a number from 0 to 1, found 1.01"),
        ("min_p", math.inf, "min_p: expected a number from 0 to 1, found inf"),
        ("typical_p", -1, "typical_p: expected a number from 0 to 1, found -1"),
        ("repeat_penalty", 0, "repeat_penalty: expected a number from 0.01 to 100, found 0"),
        ("presence_penalty", 101, "presence_penalty: expected a number from -100 to 100, found 101"),
        ("frequency_penalty", True, "frequency_penalty: expected a number from -100 to 100, found True"),
        ("top_k", 1.5, "top_k: expected a whole number from -1 to 2147483647, found 1.5"),
        ("top_k", None, "top_k: expected a whole number from -1 to 2147483647, found None"),
        ("repeat_last_n", -2, "repeat_last_n: expected a whole number from -1 to 2147483647, found -2"),
        ("seed", -2, "seed: expected a whole number from -1 to 18446744073709551615, found -2"),
        ("seed", 1 << 64, "seed: expected a whole number from -1 to 18446744073709551615, found 18446744073709551616"),
        ("mirostat", 3, "mirostat: expected a whole number from 0 to 2, found 3"),
        ("xtc_threshold", -0.5, "xtc_threshold: expected a number from 0 to 1, found -0.5"),
        ("ignore_eos", 1, "ignore_eos: expected True or False, found 1"),
        ("dry_sequence_breakers", "\n", "dry_sequence_breakers: expected a list of texts, found '\\n'"),
        ("dry_sequence_breakers", [1], "dry_sequence_breakers: expected a list of texts, found [1]"),
        ("logit_bias", {-1: 0.5}, "logit_bias: expected a token id and a number or -inf, found -1 and 0.5"),
        ("logit_bias", {3: math.inf}, "logit_bias: expected a token id and a number or -inf, found 3 and inf"),
        ("logit_bias", [3], "logit_bias: expected pairs of a token id and a number, found [3]"),
        ("logit_bias", 5, "logit_bias: expected pairs of a token id and a number, found 5"),
        ("logit_bias", ["3*1"], "logit_bias: expected ID+BIAS or ID-BIAS, such as 15043-1.5, found '3*1'"),
        ("samplers", 5, "samplers: expected a list of texts, found 5"),
        ("samplers", ["top_k"] * 33, "samplers: expected at most 32, found 33"),
    ],
)
def test_a_value_outside_its_range_is_refused_in_one_line(name, value, message):
    with pytest.raises(SamplingError) as caught:
        SamplingParams(**{name: value})
    assert str(caught.value) == message


def test_seed_minus_one_means_fresh_entropy():
    assert SamplingParams(seed=-1) == SamplingParams(seed=None)


def test_numbers_of_other_types_become_plain_ones():
    params = SamplingParams(temperature=1, top_k=np.int32(7), top_p=np.float32(0.5), logit_bias={np.int64(3): 1})
    assert (type(params.temperature), type(params.top_k), type(params.top_p)) == (float, int, float)
    assert params.logit_bias == ((3, 1.0),)


def test_biases_of_one_token_add_up_and_are_ordered():
    assert SamplingParams(logit_bias=[(7, 1.0), (3, -math.inf), (7, 0.5)]).logit_bias == ((3, -math.inf), (7, 1.5))
    assert SamplingParams(logit_bias=["7+1", "3-inf", " 7+0.5 "]).logit_bias == ((3, -math.inf), (7, 1.5))


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("top_k;temperature", ("top_k", "temperature")),
        (
            " Top-K ; topp; nucleus ;temp;typ; typical ;typ-p;min-p ",
            "top_k top_p top_p temperature typ_p typ_p typ_p min_p",
        ),
        ("top-n-sigma;topnsigma;dry;xtc;penalties", "top_n_sigma top_n_sigma dry xtc penalties"),
        (["minp", "xtc"], ("min_p", "xtc")),
        (["minp;xtc", "top_k"], ("min_p", "xtc", "top_k")),
        ("", ()),
        (";;", ()),
    ],
)
def test_samplers_are_named_as_the_reference_names_them(given, names):
    assert sampler_names(given) == (tuple(names.split()) if isinstance(names, str) else names)


def test_an_unknown_sampler_is_named():
    with pytest.raises(SamplingError, match=r"samplers: expected some of penalties, .*; found 'infill'"):
        SamplingParams(samplers="top_k;infill")


# --- the live values --------------------------------------------------------------------------------------------------


def test_an_update_changes_the_version_at_the_address():
    shared = SharedSampling(SamplingParams(temperature=0.5))
    view = np.frombuffer((np.ctypeslib.ctypes.c_char * 8).from_address(shared.address), np.int64)
    version = shared.version
    assert view[0] == version
    shared.update(temperature=1.25, top_k=-1)
    assert shared.snapshot() == (version + 1, SamplingParams(temperature=1.25, top_k=-1))
    assert view[0] == shared.version == version + 1


def test_a_refused_update_changes_nothing():
    shared = SharedSampling()
    with pytest.raises(SamplingError, match="top_p"):
        shared.update(temperature=1.0, top_p=2.0)
    with pytest.raises(SamplingError, match="heat: no such sampling parameter"):
        shared.update(heat=1)
    assert shared.snapshot() == (0, SamplingParams())


def test_no_update_of_several_threads_is_lost():
    shared = SharedSampling()

    def turn(name):
        for step in range(200):
            shared.update(**{name: step / 200})

    threads = [threading.Thread(target=turn, args=(name,)) for name in ("temperature", "top_p", "min_p")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.version == 600
    assert (shared.params.temperature, shared.params.top_p, shared.params.min_p) == (199 / 200,) * 3


def test_the_sampler_looks_at_every_token():
    shared = SharedSampling(SamplingParams(seed=3, temperature=0.0))
    sampler = Sampler(shared)
    flat = np.zeros(64, np.float32)
    assert [sampler.sample(flat, [])[0] for _ in range(5)] == [0] * 5
    shared.update(temperature=1.0, **OFF)
    assert len({sampler.sample(flat, [])[0] for _ in range(20)}) > 5
