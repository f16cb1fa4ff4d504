"""C_n and D_n are groups, and act on images and G-feature maps as groups do."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsfcnn.errors import GroupError, ShapeError, UsageError
from dsfcnn.groups import Cyclic, Dihedral, act, parse_group

NAMES = ["C1", "C2", "C3", "C4", "C8", "C12", "D1", "D2", "D3", "D4", "D8"]
EXACT = ["C1", "C2", "C4", "C8", "C12", "D1", "D2", "D3", "D4", "D8"]


def elements_of(group):
    return range(group.size)


def exact_elements(group):
    return [element for element in elements_of(group) if group.is_exact(element)]


@pytest.mark.parametrize("name", NAMES)
def test_group_laws(name):
    """Composition is associative, 0 is the identity, and every element has an inverse on both sides."""
    group = parse_group(name)
    elements = elements_of(group)
    for a, b, c in product(elements, repeat=3):
        assert group.compose(group.compose(a, b), c) == group.compose(a, group.compose(b, c))
    for a in elements:
        assert group.compose(0, a) == group.compose(a, 0) == a
        assert group.compose(a, group.inverse(a)) == group.compose(group.inverse(a), a) == 0


@st.composite
def groups_with_elements(draw):
    family, n = draw(st.sampled_from([Cyclic, Dihedral])), draw(st.integers(1, 500))
    group = family(n)
    return group, *(draw(st.integers(0, group.size - 1)) for _ in range(3))


@settings(derandomize=True, deadline=None, database=None)
@given(groups_with_elements())
def test_composition_is_movement_of_the_plane(drawn):
    """The integers stand for movements: a point carried by b and then by a is the point carried by a b; large groups are associative."""
    group, a, b, c = drawn
    point = torch.tensor([2.0 + 1.0j, -0.5 + 3.0j], dtype=torch.complex128)
    torch.testing.assert_close(group.move(group.move(point, b), a), group.move(point, group.compose(a, b)), rtol=0, atol=1e-12)
    torch.testing.assert_close(group.move(group.move(point, a), group.inverse(a)), point, rtol=0, atol=1e-12)
    assert group.compose(group.compose(a, b), c) == group.compose(a, group.compose(b, c))


@pytest.mark.parametrize("name", NAMES)
def test_different_elements_move_points_differently(name):
    group = parse_group(name)
    point = torch.tensor([2.0 + 1.0j], dtype=torch.complex128)
    places = {complex(round(place.real, 9), round(place.imag, 9)) for e in elements_of(group) for place in group.move(point, e).tolist()}
    assert len(places) == group.size


@pytest.mark.parametrize("name", NAMES)
def test_offsets_are_a_latin_square(name):
    """offsets[theta, phi] is the element that leads from phi to theta; each row and column holds every element once."""
    group = parse_group(name)
    offsets = group.offsets()
    everything = torch.arange(group.size)
    for axis in (0, 1):
        assert torch.equal(offsets.sort(axis).values.movedim(axis, 0), everything[:, None].expand(-1, group.size))
    for theta, phi in product(elements_of(group), repeat=2):
        assert group.compose(phi, offsets[theta, phi].item()) == theta


def test_offsets_of_rotations_are_differences_of_angles():
    assert parse_group("C3").offsets().tolist() == [[0, 2, 1], [1, 0, 2], [2, 1, 0]]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("fields", [False, True], ids=["images", "fields"])
@pytest.mark.parametrize("size", [(4, 4), (5, 5), (4, 7)])
def test_exact_elements_act_as_a_group(name, fields, size):
    """Moving by h and then by g is moving by g h, and the inverse undoes it: bit for bit, for turns that map pixels onto pixels."""
    group = parse_group(name)
    x = torch.randn(2, 3, *([group.size] if fields else []), *size)
    assert torch.equal(act(x, group, 0), x)
    for g, h in product(exact_elements(group), repeat=2):
        assert torch.equal(act(act(x, group, h), group, g), act(x, group, group.compose(g, h)))
    for g in exact_elements(group)[1:]:
        moved = act(x, group, g)
        assert moved.shape != x.shape or not torch.equal(moved, x)
        assert torch.equal(act(moved, group, group.inverse(g)), x)


def test_turns_are_counter_clockwise_and_mirrors_turn_upside_down():
    image = torch.tensor([[1.0, 2.0], [3.0, 4.0]])[None, None]
    assert act(image, parse_group("C4"), 1)[0, 0].tolist() == [[2, 4], [1, 3]]
    assert act(image, parse_group("C8"), 2)[0, 0].tolist() == [[2, 4], [1, 3]]
    assert act(image, parse_group("D4"), 4)[0, 0].tolist() == [[3, 4], [1, 2]]


def test_orientations_change_places():
    """g carries orientation h to g h: under a quarter turn of C4 what was at 0 degrees is found at 90."""
    fields = torch.arange(4.0).view(1, 1, 4, 1, 1)
    assert act(fields, parse_group("C4"), 1).flatten().tolist() == [3, 0, 1, 2]
    assert act(fields, parse_group("D2"), 2).flatten().tolist() == [2, 3, 0, 1]


@pytest.mark.parametrize("name", ["C4", "C8", "D3"])
def test_vectors_stay(name):
    group, x = parse_group(name), torch.randn(2, 3)
    for element in elements_of(group):
        assert torch.equal(act(x, group, element), x)


def test_turns_between_pixels_nearly_compose():
    """Two turns by 45 degrees are one by 90, to the accuracy of splines, on a smooth image away from the edge."""
    group = parse_group("C8")
    axis = torch.linspace(-1, 1, 33, dtype=torch.float64)
    blob = torch.exp(-((axis[:, None] - 0.2) ** 2 + (axis - 0.1) ** 2) / 0.1)[None, None]
    twice = act(act(blob, group, 1), group, 1)
    assert (twice - act(blob, group, 2)).abs().max() < 5e-3
    assert (act(blob, group, 1) - blob).abs().max() > 0.1


def test_angles():
    group = parse_group("D8")
    assert [group.degrees(element) for element in (0, 1, 2, 9)] == [0, 45, 90, 45]
    assert group.angle(2) == pytest.approx(math.pi / 2)
    assert exact_elements(group) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert exact_elements(parse_group("C3")) == [0]


def test_maps_that_cannot_be_moved_are_refused(refused):
    with refused(ShapeError, fix="give the group of the layer"):
        act(torch.zeros(1, 2, 4, 5, 5), parse_group("C8"), 1)
    with refused(UsageError, fix="give a square one"):
        act(torch.zeros(1, 2, 5, 6), parse_group("C8"), 1)


@pytest.mark.parametrize("name", NAMES)
def test_names(name):
    group = parse_group(name)
    assert group.name == str(group) == name
    assert group.size == int(name[1:]) * (2 if name[0] == "D" else 1)
    assert parse_group(group) is group
    assert parse_group(name) == group


@pytest.mark.parametrize("name", ["C0", "E8", "c8", "C", "", "C-1", "C08", "C8.0", " C8", "C8\n", "SO2", None, 8, ("C", 8)])
def test_other_names_are_refused(name, refused):
    with refused(GroupError, fix="use C1, C2, C3, ... (rotations) or D1, D2, ... (rotations and mirrors)"):
        parse_group(name)
