"""TensorView: rows, addresses and values of a tensor in place."""

import ctypes

import numpy as np
import pytest
from tinyllm_engine import tensor
from tinyllm_engine.quants import QUANT_TYPES
from tinyllm_engine.tensor import TensorView

F32, Q8_0 = QUANT_TYPES[0], QUANT_TYPES[8]


def q8_0(rows, columns, seed=0):
    """A view of random Q8_0 blocks and its values."""
    blocks = np.random.default_rng(seed).integers(0, 256, (rows * columns // 32, 34), np.uint8)
    blocks[:, 1] &= 0x3F  # finite scales
    view = TensorView("blk.0.attn_q.weight", (columns, rows), Q8_0, blocks.reshape(-1))
    return view, Q8_0.dequantize(blocks).reshape(rows, columns)


def test_sizes():
    view = TensorView("experts", (64, 3, 5), Q8_0, np.zeros(15 * 68, np.uint8))
    assert (view.row_bytes, view.rows, view.nbytes) == (68, 15, 1020)
    vector = TensorView("norm", (7,), F32, np.zeros(28, np.uint8))
    assert (vector.row_bytes, vector.rows, vector.nbytes) == (28, 1, 28)
    empty = TensorView("none", (64, 0), Q8_0, np.zeros(0, np.uint8))
    assert (empty.row_bytes, empty.rows, empty.nbytes) == (68, 0, 0)


def test_rows_are_views_and_the_address_is_theirs():
    view, _ = q8_0(4, 64)
    row = view.row(2)
    assert row.base is not None
    assert np.shares_memory(row, view.data)
    assert row.ctypes.data == view.address + 2 * view.row_bytes
    assert ctypes.string_at(view.address, view.nbytes) == view.data.tobytes()


@pytest.mark.parametrize("i", [-1, 4])
def test_a_row_outside_is_an_index_error(i):
    view, _ = q8_0(4, 64)
    with pytest.raises(IndexError, match=f"'blk.0.attn_q.weight' has 4 rows, asked for row {i}"):
        view.row(i)


def test_dequantize_gives_the_rows_asked_for():
    view, values = q8_0(6, 96)
    np.testing.assert_array_equal(view.dequantize(), values)
    np.testing.assert_array_equal(view.dequantize(2), values[2:])
    np.testing.assert_array_equal(view.dequantize(1, 4), values[1:4])
    assert view.dequantize(6).shape == (0, 96)
    assert view.dequantize(3, 3).shape == (0, 96)
    for start, stop in [(-1, 2), (4, 3), (0, 7)]:
        with pytest.raises(IndexError, match=f"has 6 rows, asked for {start} to {stop}"):
            view.dequantize(start, stop)


def test_dequantize_in_pieces_is_the_same(monkeypatch):
    view, values = q8_0(6, 96)
    monkeypatch.setattr(tensor, "_CHUNK_ELEMENTS", 100)
    np.testing.assert_array_equal(view.dequantize(), values)
    monkeypatch.setattr(tensor, "_CHUNK_ELEMENTS", 1)
    np.testing.assert_array_equal(view.dequantize(), values)


def test_values_are_new_memory():
    data = np.ones(3, np.float32).view(np.uint8)
    view = TensorView("norm", (3,), F32, data)
    view.dequantize()[:] = 7
    assert view.dequantize().tolist() == [[1, 1, 1]]


@pytest.mark.parametrize(("dims", "size"), [((64, 2), 135), ((64, 2), 0), ((48,), 51)])
def test_data_that_does_not_fit_the_dimensions_is_refused(dims, size):
    with pytest.raises(ValueError, match="do not make up these dimensions"):
        TensorView("t", dims, Q8_0, np.zeros(size, np.uint8))


def test_repr_names_the_tensor():
    assert repr(q8_0(4, 64)[0]) == "<TensorView 'blk.0.attn_q.weight' Q8_0 [64, 4]>"


def test_rows_of_a_tensor_are_a_tensor():
    view, _ = q8_0(4, 64)
    part = view.rows_between(1, 3)
    assert (part.dims, part.type, part.address) == ((64, 2), view.type, view.address + view.row_bytes)
    assert np.array_equal(part.dequantize(), view.dequantize(1, 3))
    assert view.rows_between(4, 4).rows == 0
    for start, stop in ((-1, 2), (0, 5), (3, 2)):
        with pytest.raises(IndexError, match=f"has 4 rows, asked for {start} to {stop}"):
            view.rows_between(start, stop)
