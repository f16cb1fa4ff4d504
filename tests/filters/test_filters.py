"""Filters turn with the group, and only weights that change them are stored."""

import pytest
import torch

from dsfcnn.filters import rotated_basis, steerable_basis
from dsfcnn.groups import parse_group

BASES = {"steerable": steerable_basis, "rotated": rotated_basis}


@pytest.mark.parametrize("name", ["C1", "C3", "C4", "C8", "C12", "D4", "D6"])
@pytest.mark.parametrize("kernel_size", [3, 5, 7, 9])
def test_steerable_filters_turn_exactly(name, kernel_size):
    """A turn by one step is a linear map of the weights alone; s of them are the turn by s steps, and n of them the identity."""
    group = parse_group(name)
    moved = steerable_basis(kernel_size, group).moved.flatten(2)  # G L KK
    assert torch.linalg.matrix_rank(moved[0]) == moved.shape[1]  # no weight is redundant
    one_step = moved[1 % group.orientations] @ torch.linalg.pinv(moved[0])  # L L: picture l, turned, as a sum of unturned ones
    pictures = moved[0]
    for step in range(1, group.orientations + 1):
        pictures = one_step @ pictures
        torch.testing.assert_close(pictures, moved[step % group.orientations], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["C4", "C8", "C12", "D4", "D8"])
@pytest.mark.parametrize("kernel_size", [3, 5, 7])
@pytest.mark.parametrize("kind", BASES)
def test_a_quarter_turn_of_the_weights_is_one_of_the_picture(kind, kernel_size, name):
    """Where the grid maps onto itself the filter moved by the group is the picture turned, mirrored or both."""
    group = parse_group(name)
    moved = BASES[kind](kernel_size, group).moved
    for quarter in range(4):
        element = quarter * group.orientations // 4
        torch.testing.assert_close(moved[element], torch.rot90(moved[0], quarter, dims=(1, 2)), rtol=0, atol=1e-12)
        if name.startswith("D"):
            mirrored = torch.rot90(moved[0].flip(1), quarter, dims=(1, 2))
            torch.testing.assert_close(moved[group.orientations + element], mirrored, rtol=0, atol=1e-12)
    assert (moved[group.orientations // 4] - moved[0]).abs().max() > 0.1


@pytest.mark.parametrize(("kernel_size", "live", "paper"), [(3, 6, 8), (5, 11, 14), (7, 18, 22), (9, 33, 38)])
@pytest.mark.parametrize("name", ["C1", "C8", "D4"])
def test_live_weights_of_steerable_filters(kernel_size, live, paper, name):
    """Two reals for each atom as the paper counts, less the imaginary part where k = 0, which has no effect."""
    basis = steerable_basis(kernel_size, parse_group(name))
    assert (basis.moved.shape[1], len(basis.spread), basis.paper_count) == (live, live, paper)


@pytest.mark.parametrize(
    ("kernel_size", "name", "live"),
    [(7, "C8", 37), (7, "C12", 37), (7, "C4", 49), (7, "D4", 49), (7, "C1", 49), (5, "C8", 21), (5, "C4", 25), (3, "C8", 9)],
)
def test_live_weights_of_rotated_filters(kernel_size, name, live):
    """Groups with turns between pixels keep to the disc; the others use the whole square."""
    basis = rotated_basis(kernel_size, parse_group(name))
    assert (basis.moved.shape[1], len(basis.spread), basis.paper_count) == (live, live, kernel_size**2)


@pytest.mark.parametrize("name", ["C8", "C12", "D8"])
def test_the_disc_holds_every_turn(name):
    """No weight reaches a corner in any orientation, and a constant filter stays constant well inside the disc."""
    group = parse_group(name)
    moved = rotated_basis(7, group).moved
    assert (moved[..., 0, 0] == 0).all()
    inside = moved.sum(1)[:, 2:5, 2:5]
    torch.testing.assert_close(inside, torch.ones_like(inside), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", BASES)
def test_unmoved_weights_show_as_they_are(kind):
    """The identity leaves an ordinary filter's pixels in place; a steerable one's pictures are atoms of at most unit norm."""
    moved = BASES[kind](5, parse_group("C8")).moved[0]
    if kind == "rotated":
        assert torch.equal(moved.flatten(1).sum(1), torch.ones(21).double())
        assert torch.equal(moved.flatten(1).argmax(1).sort().values, moved.flatten(1).argmax(1))
    else:
        assert (moved.flatten(1).norm(dim=1) <= 1 + 1e-12).all()
        assert (moved.flatten(1).norm(dim=1) >= 0.5).all()
