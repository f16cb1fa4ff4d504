"""Atoms are rings times circular harmonics: they have the paper's frequencies, unit norm, and the symmetry of the pixel grid."""

import cmath
import math

import pytest
import torch

from dsfcnn.basis import frequency_limits, ring_widths, sample_atoms
from dsfcnn.errors import KernelSizeError

SIZES = [3, 5, 7, 9, 11, 13]


@pytest.mark.parametrize(
    ("kernel_size", "limits"),
    [
        (3, (0, 2)),
        (5, (0, 2, 2)),
        (7, (0, 2, 3, 2)),
        (9, (0, 3, 4, 4, 3)),
        (11, (0, 3, 4, 4, 4, 3)),
        (13, (0, 3, 4, 4, 4, 4, 3)),
    ],
)
def test_frequency_limits(kernel_size, limits):
    """Every ring from the centre to the edge of the square has the highest frequency that its pixels can hold."""
    assert frequency_limits(kernel_size) == limits
    assert len(ring_widths(kernel_size)) == kernel_size // 2 + 1
    for ring, limit in enumerate(limits[1:], start=1):
        assert 2 * limit <= 2 * math.pi * ring  # two samples for each period


@pytest.mark.parametrize("kernel_size", [0, 2, 4, 10, -1, -3, 7.0, 3.5, "7", None, True])
@pytest.mark.parametrize("function", [frequency_limits, ring_widths, sample_atoms])
def test_a_size_without_centre_pixel_is_refused(function, kernel_size, refused):
    even = isinstance(kernel_size, int) and kernel_size > 0 and kernel_size is not True
    with refused(KernelSizeError, fix=f"or {kernel_size + 1}" if even else "use 3, 5, 7"):
        function(kernel_size)


@pytest.mark.parametrize(("kernel_size", "number"), [(3, 4), (5, 7), (7, 11), (9, 19)])
def test_number_of_atoms(kernel_size, number):
    """One atom for each ring and each frequency from 0 to the ring's limit, ordered by ring, then by frequency."""
    atoms = sample_atoms(kernel_size)
    assert atoms.values.shape == (number, kernel_size, kernel_size)
    wanted = [(ring, k) for ring, limit in enumerate(frequency_limits(kernel_size)) for k in range(limit + 1)]
    assert list(zip(atoms.ring.tolist(), atoms.frequency.tolist())) == wanted


@pytest.mark.parametrize("kernel_size", SIZES)
def test_atoms_have_unit_norm(kernel_size):
    norms = torch.linalg.vector_norm(sample_atoms(kernel_size).values, dim=(1, 2))
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel_size", SIZES)
def test_oscillating_atoms_vanish_at_the_centre(kernel_size):
    """The centre has no angle: only frequency 0 may have a value there, and the innermost ring does."""
    atoms = sample_atoms(kernel_size)
    centre = atoms.values[:, kernel_size // 2, kernel_size // 2]
    assert (centre[atoms.frequency > 0] == 0).all()
    assert centre[0].abs() > 0.5


def test_atoms_follow_their_formula():
    """Paper Eq. (12) at single places, up to the norm: the ring sets the size, k times the azimuth the phase."""
    atoms = sample_atoms(7)
    for ring, frequency, atom in zip(atoms.ring.tolist(), atoms.frequency.tolist(), atoms.values):
        width = 0.4 if ring == 3 else 0.6
        scale = None
        for x, y in [(1, 0), (0, 1), (-2, 1), (2, -2), (3, 3)]:
            wanted = cmath.exp(-((math.hypot(x, y) - ring) ** 2) / (2 * width**2) + 1j * frequency * math.atan2(y, x))
            found = atom[3 - y, 3 + x].item() / wanted  # rows count downwards
            scale = found if scale is None else scale
            assert abs(found - scale) < 1e-12 * abs(scale)
        assert scale.real > 0
        assert abs(scale.imag) < 1e-12


@pytest.mark.parametrize("kernel_size", SIZES)
def test_a_quarter_turn_multiplies_by_a_phase(kernel_size):
    """The steering law on pixels: an atom turned by 90 degrees is e^{-ik pi/2} times itself, not only nearly."""
    atoms = sample_atoms(kernel_size)
    phase = torch.tensor([1, -1j, -1, 1j], dtype=torch.complex128)[atoms.frequency % 4]
    turned = torch.rot90(atoms.values, dims=(1, 2))
    torch.testing.assert_close(turned, phase[:, None, None] * atoms.values, rtol=0, atol=1e-12)
    assert (turned - phase.conj()[:, None, None] * atoms.values).abs().max() > 0.1  # the sign of the turn matters


@pytest.mark.parametrize("kernel_size", SIZES)
def test_a_mirror_conjugates(kernel_size):
    """Mirrored in the horizontal axis an atom is its conjugate; in the vertical axis, (-1)^k times that."""
    atoms = sample_atoms(kernel_size)
    sign = 1 - 2 * (atoms.frequency % 2)[:, None, None]
    conjugate = atoms.values.conj().resolve_conj()
    torch.testing.assert_close(atoms.values.flip(1), conjugate, rtol=0, atol=1e-12)
    torch.testing.assert_close(atoms.values.flip(2), sign * conjugate, rtol=0, atol=1e-12)
