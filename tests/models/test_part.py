"""A part of the maps is what the whole gives there, without computing what it does not depend on."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dsfcnn
from dsfcnn.models import heads

HEIGHT, WIDTH = 160, 144


@pytest.fixture(scope="module", params=["as it is", "folded"])
def model(request):
    torch.manual_seed(0)
    model = dsfcnn.create("dsf-nuclei", group="C4", width=0.3).double()
    return model.eval() if request.param == "as it is" else dsfcnn.fold(model.eval())


@pytest.fixture(scope="module")
def image():
    return torch.rand(1, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(1)).double()


@pytest.fixture(scope="module")
def whole(model, image):
    with torch.inference_mode():
        return model(image)


def difference(found, whole, part):
    rows, columns = (slice(*span) for span in part)
    return max(((found[head] - whole[head][..., rows, columns]).abs().max() / whole[head].abs().max()).item() for head in whole)


@settings(deadline=None, derandomize=True, max_examples=6)
@given(*(st.tuples(st.integers(0, side - 1), st.integers(1, side)) for side in (HEIGHT, WIDTH)))
def test_a_part_is_what_the_whole_gives_there(model, image, whole, rows, columns):
    part = tuple((start, min(start + length, side)) for (start, length), side in zip((rows, columns), (HEIGHT, WIDTH)))
    with torch.inference_mode():
        assert difference(model(image, part), whole, part) < 1e-12


def test_a_shorter_reach_would_be_noticed(model, image, whole):
    part, reach = ((80, 82), (70, 72)), model.reach
    for level in range(2):  # on coarser ones the part needs everything
        model.reach = [near // 2 if place == level else near for place, near in enumerate(reach)]
        with torch.inference_mode():
            found = difference(model(image, part), whole, part)
        model.reach = reach
        assert found > 1e-12


def test_a_hook_in_a_head_sees_the_whole_map(monkeypatch):
    """Without one, a head does a strip at a time."""
    monkeypatch.setattr(heads, "_STRIP_BYTES", 1)
    head, x, seen = heads.MapHead(4, 5, 2).eval(), torch.randn(1, 4, 8, 7), []
    with torch.no_grad():
        strips = head(x)
        head[0][1].register_forward_hook(lambda layer, given, made: seen.append(made.shape))
        torch.testing.assert_close(head(x), strips)
    assert seen == [(1, 5, 8, 7)]
