"""The generator: what it folds is what the atoms have."""

import numpy as np
import pytest

from dsfcnn.basis import frequency_limits, sample_atoms
from dsfcnn.kernels import bank, tables


@pytest.mark.parametrize("kernel_size", bank.KERNEL_SIZES)
def test_the_generator_knows_the_atoms_of_the_basis(kernel_size):
    """It runs without torch, so it has its own list of frequencies."""
    assert bank.FREQUENCY_LIMITS[kernel_size] == frequency_limits(kernel_size)
    real = [f.frequency for f in bank.filters(kernel_size) if not f.imaginary]
    assert real == sample_atoms(kernel_size).frequency.tolist()


def unfolded(tap):
    """Every place that a tap reads, with its sign."""
    places = {}
    for exchanged in (False, True) if tap.exchange else (False,):
        dx, dy = (tap.dy, tap.dx) if exchanged else (tap.dx, tap.dy)
        for x in {dx, -dx}:
            for y in {dy, -dy}:
                sign = (-1 if tap.odd_x and x < 0 else 1) * (-1 if tap.odd_y and y < 0 else 1)
                places[x, y] = sign * (tap.exchange if exchanged else 1)
    return places


@pytest.mark.parametrize("kernel_size", bank.KERNEL_SIZES)
def test_folded_taps_unfold_to_the_atoms(kernel_size):
    """Coefficients at the generator's places, spread over the places that share them, are the whole sampled atom."""
    half, atoms = kernel_size // 2, sample_atoms(kernel_size).values.numpy()
    for f in bank.filters(kernel_size):
        picture = np.zeros((kernel_size, kernel_size))
        part = atoms[f.atom].imag if f.imaginary else atoms[f.atom].real
        for tap in bank.taps(f, kernel_size):
            for (dx, dy), sign in unfolded(tap).items():
                assert picture[half + dy, half + dx] == 0, "a place is read twice"
                picture[half + dy, half + dx] = sign * part[half + tap.dy, half + tap.dx]
        np.testing.assert_allclose(picture, part, atol=1e-12)


def test_folding_saves_what_it_says():
    every = [sum(len(list(bank.taps(f, kernel_size))) for f in bank.filters(kernel_size)) for kernel_size in (5, 7)]
    assert every == [54, 172]
    assert [bank.multiply_adds(kernel_size) for kernel_size in (5, 7)] == [33, 127]


@pytest.mark.parametrize("kernel_size", bank.KERNEL_SIZES)
def test_combined_atoms_have_the_numbers_that_the_code_leaves_out(kernel_size):
    half, atoms = kernel_size // 2, sample_atoms(kernel_size)
    combine, combined = tables.combinations(kernel_size)
    np.testing.assert_allclose(np.einsum("ij,jyx->iyx", combine, combined), atoms.values.numpy(), atol=1e-12)
    assert np.linalg.cond(combine) < 10
    left_out = 0
    for atom, k in enumerate(atoms.frequency.tolist()):
        assert not combine[atom, atoms.frequency.numpy() != k].any(), "combines atoms of different frequencies"
        for ring in range(half + 1):
            number = bank.known(bank.Coefficient(atom, imaginary=False, dy=0, dx=ring), kernel_size)
            if number is not None:
                np.testing.assert_allclose(combined[atom, half, half + ring].real, number, atol=1e-12)
                left_out += 1
    assert left_out == sum(np.square(np.bincount(atoms.frequency.numpy())))


@pytest.mark.parametrize("kernel_size", bank.KERNEL_SIZES)
def test_sines_of_odd_frequency_are_cosines_turned_over(kernel_size):
    """So one coefficient serves both."""
    for atom, k in zip(sample_atoms(kernel_size).values.numpy(), sample_atoms(kernel_size).frequency.tolist()):
        if k % 2:
            np.testing.assert_allclose(atom.imag, bank.sine_sign(k) * atom.real.T, atol=1e-12)


@pytest.mark.parametrize("kernel_size", bank.KERNEL_SIZES)
@pytest.mark.parametrize("n", [2, 4, 6, 8, 12, 32])
def test_routes_fill_every_row_of_every_product_once(n, kernel_size):
    rows, step = len(bank.filters(kernel_size)), bank.CHUNK * len(bank.filters(kernel_size)) * bank.TILE
    lengths = {bank.NOWHERE: [], bank.SINGLE: [0], bank.REAL: [0, bank.TILE], bank.COMPLEX: [0, step]}
    filled = [r.offset + more for pair in bank.routes(n, kernel_size) for r in pair for more in lengths[r.kind]]
    assert sorted(filled) == [panel * step + row * bank.TILE for panel in range(n) for row in range(rows)]
