"""The variance study: features are found, turned back rightly, and of an equivariant network nothing varies at quarter turns."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from dsfcnn.errors import DataError, GroupError, MissingInputError, UsageError
from dsfcnn.groups import act, parse_group
from dsfcnn.layers import GConv2d, LiftConv2d
from dsfcnn.layers.harmonic import HarmonicConv2d
from dsfcnn.layers.vector import VectorConv2d
from dsfcnn.models import create, names, save_model
from dsfcnn.study.equivariance import Feature, Spread, compare, default_steps, find_features, open_image, open_network, turn_back
from dsfcnn.study.equivariance_figure import FRAME, draw_variance, frame_sheet
from dsfcnn.study.turning import turn

# Light, but with fields enough that no layer is dead.
WIDTHS = {"hnet": 0.1, "sfcnn": 0.1, "p4m": 0.5, "dsf": 0.15}


def light(name):
    return open_network(f"{name}:{WIDTHS.get(name.partition('-')[0], 0.15)}")


def picture(height=48, width=48):
    """Coloured noise without detail finer than a few pixels, uint8."""
    coarse = np.random.default_rng(1).integers(0, 256, (height // 4, width // 4, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


@pytest.fixture
def image(tmp_path):
    Image.fromarray(picture()).save(tmp_path / "image.png")
    return open_image(tmp_path / "image.png", 32)


@pytest.mark.parametrize("name", [name for name in names() if not name.endswith("glands")])  # as nuclei, with one head
def test_quarter_turns(name, image):
    """Nothing varies beyond rounding but in an ordinary CNN; between quarter turns something does everywhere."""
    found = compare([light(name)], *image, steps=8).columns[0].features
    task = name.rpartition("-")[2]
    heads = {"nuclei": ["object", "marker"]}.get(task, ["classes"])
    assert list(found) == ["A", "B", *heads]
    for label, feature in found.items():
        report = feature.report()
        every, quarter = report["all_steps"], report["quarter_turns"]
        assert (every["turns"], quarter["turns"]) == (8, 4)
        if label == "classes":
            assert every["mean_variance"] > 1e-12
            assert (quarter["mean_variance"] < 1e-12) == (not name.startswith("cnn"))
            continue
        assert report["feature_variance"] > 1e-9
        assert every["ratio"] > 1e-4
        if name.startswith("cnn"):
            assert quarter["ratio"] > 0.1
        else:
            assert quarter["ratio"] < 1e-8


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("cnn-nuclei", "encoder.0.1.0", "before_skip.3.0"),
        ("vfcnn-glands", "encoder.0.1.0", "before_skip.3.0"),
        ("dsf-nuclei", "encoder.stem.3", "last.0"),
        ("dsf-tumour", "encoder.stem.3", "encoder.blocks.3.closing.2"),
        ("steerable-tumour", "encoder.0.1.0", "encoder.4.2.0"),
        ("hnet-digits", "encoder.1.0", "encoder.8.0"),
        ("p4m-tumour", "blocks.0.2", "blocks.4.2"),  # the transitions between are 1x1
        ("sfcnn-digits", "encoder.3", "encoder.17"),
    ],
)
def test_features_are_found(name, first, second):
    network = light(name)
    assert find_features(network) == {"A": first, "B": second}
    assert not any(layer._forward_hooks for layer in network.model.modules())


def test_the_figures_written_out(image):
    """Feature A of a C4 network in plain numpy: turn back in space, roll the orientations, variance, mean over the disc."""
    network = open_network("steerable-glands:C4:0.15")
    comparison = compare([network], *image, steps=4)
    plain = open_network("cnn-glands:0.15")
    for model, orientations in ((network, 4), (plain, 1)):
        feature = compare([model], *image, steps=4).columns[0].features["A"]
        level = model.model.encoder[0]
        back = []
        for k, view in enumerate(comparison.views):
            with torch.no_grad():
                output = level[1][0](level[0](view)).reshape(-1, orientations, 32, 32).numpy()
            back.append(np.roll(np.rot90(output, -k, axes=(2, 3)), -k, axis=1))
        offsets = np.arange(32) - 15.5
        inside = np.hypot(offsets[:, None], offsets) <= 16
        variance = np.var(back, axis=0).mean((0, 1))
        own = np.mean([plane[inside].var() for field in back[0] for plane in field])
        report = feature.report()
        np.testing.assert_allclose(feature.variance_map(), variance, atol=1e-14)
        np.testing.assert_allclose(report["all_steps"]["mean_variance"], variance[inside].mean(), atol=1e-14)
        np.testing.assert_allclose(report["feature_variance"], own)
        assert report["all_steps"]["ratio"] == pytest.approx(report["all_steps"]["mean_variance"] / own)


@pytest.mark.parametrize("group", ["C4", "C8", "C12", "D4", "D8"])
@pytest.mark.parametrize("layer", [LiftConv2d, GConv2d])
def test_orientations_move_as_the_group_says(group, layer):
    layer, members = layer(1, 2, 3, group=group), parse_group(group)
    maps = torch.randn(1, 2, members.size, 6, 6, dtype=torch.float64)
    for element in range(members.orientations):
        if members.is_exact(element):
            moved = act(maps, members, element)
            torch.testing.assert_close(turn_back(moved, layer, members.degrees(element)), maps, rtol=0, atol=0)


def test_between_two_orientations():
    """45 degrees lie half-way between two elements of C4."""
    maps = torch.zeros(1, 1, 4, 9, 9, dtype=torch.float64)
    maps[:, :, 1, 4, 4] = 1
    back = turn_back(maps, LiftConv2d(1, 1, 3, group="C4"), 45.0)
    np.testing.assert_allclose(back[0, 0, :, 4, 4], [0.5, 0.5, 0, 0], atol=1e-12)


@pytest.mark.parametrize("degrees", [90, 180, 270])
@pytest.mark.parametrize("build", [lambda: HarmonicConv2d(2, 3, 5, max_frequency=2, lifts=True), lambda: VectorConv2d(2, 3, 5, lifts=True)])
def test_complex_numbers_and_arrows_turn(build, degrees):
    layer, x = build().double(), torch.randn(1, 2, 12, 12, dtype=torch.float64)
    with torch.no_grad():
        want, got = layer(x), layer(turn(x, degrees))
    torch.testing.assert_close(turn_back(got, layer, degrees), want, rtol=0, atol=1e-10)
    assert (turn(got, -degrees) - want).abs().max() > 0.1  # planes alone do not do


def test_a_spread_keeps_its_digits():
    values = 1e6 + 1e-3 * np.random.default_rng(0).standard_normal((7, 4, 5))
    spread = Spread()
    for value in values:
        spread.add(torch.from_numpy(value))
    np.testing.assert_allclose(spread.variance(), values.var(axis=0), rtol=1e-5)


def test_a_single_quarter_turn_has_no_variance(image):
    """Steps of 120 degrees have none but the upright one."""
    report = compare([light("cnn-tumour")], *image, steps=3).report()
    assert report["quarter_turns"] == [0.0]
    feature = report["models"][0]["features"]["A"]
    assert feature["quarter_turns"] == {"turns": 1, "mean_variance": None, "ratio": None}
    assert feature["all_steps"]["turns"] == 3


def test_a_map_without_content_has_no_ratio():
    feature = Feature()
    for value in (0.0, 1.0):
        feature.add(torch.full((1, 1, 4, 4), value), 0.0)
    report = feature.report()
    assert report["feature_variance"] == 0
    assert report["all_steps"] == {"turns": 2, "mean_variance": 0.25, "ratio": None}


def test_test_time_turning_steadies_predictions(image):
    found = compare([light("cnn-nuclei"), light("steerable-nuclei")], *image, steps=8, turns=4)
    plain, _, averaged = found.columns
    assert [column.passes for column in found.columns] == [1, 1, 4]
    assert averaged.label == f"{plain.label}, mean of 4 turns"
    assert list(averaged.features) == ["object", "marker"]
    for head in ("object", "marker"):
        alone, mean = plain.features[head].report(), averaged.features[head].report()
        assert mean["quarter_turns"]["ratio"] < 1e-8 < alone["quarter_turns"]["ratio"]
        assert mean["all_steps"]["mean_variance"] < alone["all_steps"]["mean_variance"]


def test_ticks_and_steps(image):
    ticks = []
    compare([light("cnn-digits")], *image, steps=5, turns=4, tick=lambda: ticks.append(1))
    assert len(ticks) == 10
    with pytest.raises(UsageError):
        compare([light("cnn-digits")], *image, steps=1)


@pytest.mark.parametrize(
    ("models", "steps"),
    [
        (["cnn-digits:0.1"], 8),
        (["hnet-digits:0.1"], 8),
        (["steerable-digits:C1:0.1"], 8),
        (["steerable-digits:C4:0.1"], 4),
        (["p4m-tumour:0.2"], 4),
        (["vfcnn-digits:C12:0.1"], 12),
        (["cnn-digits:0.1", "steerable-digits:C4:0.1"], 8),
        (["cnn-digits:0.1", "steerable-digits:C12:0.1"], 12),
    ],
)
def test_default_steps(models, steps):
    assert default_steps([open_network(model) for model in models]) == steps


def test_models_by_name_and_by_folder(tmp_path):
    first, same, other = (open_network("steerable-digits:C4:0.1", seed) for seed in (1, 1, 2))
    weights = [network.model.state_dict()["encoder.0.0.weight"] for network in (first, same, other)]
    assert weights[0].dtype == torch.float64
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert (first.label, first.stored, first.orientations, first.channels) == ("steerable-digits C4 width 0.1", False, 4, 1)
    assert open_network("gcnn-nuclei").label == "gcnn-nuclei C8"
    assert open_network("cnn-nuclei:0.1").label == "cnn-nuclei width 0.1"
    save_model(create("vfcnn-tumour", group="C12", width=0.1), tmp_path / "mine")
    mine = open_network(str(tmp_path / "mine"))
    assert (mine.label, mine.stored, mine.orientations, mine.channels) == ("mine", True, 12, 3)
    (tmp_path / "mine").rename(tmp_path / "best")
    assert open_network(str(tmp_path / "best")).label == tmp_path.name


def test_the_weights_of_a_folder_stay(tmp_path, image, as_trained):
    model = as_trained(create("cnn-glands", width=0.1))
    save_model(model, tmp_path / "mine")
    network = open_network(str(tmp_path / "mine"))
    compare([network], *image, steps=2)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(network.model.state_dict()[name], tensor.double() if tensor.is_floating_point() else tensor)


def test_models_that_are_not_there(refused):
    with refused(MissingInputError, fix="steerable-nuclei:C8"):
        open_network("steerable-nucleus:C8")
    with refused(UsageError, fix="takes width"):
        open_network("cnn-nuclei:C8")
    with refused(GroupError, fix="use C1"):
        open_network("steerable-nuclei:E8")
    with refused(UsageError, fix="name:group:width"):
        open_network("steerable-nuclei:8C")


@pytest.mark.parametrize(("height", "width", "size", "side"), [(50, 61, 256, 50), (51, 45, 256, 44), (90, 70, 41, 40), (33, 33, 32, 32)])
def test_the_square_in_the_middle(height, width, size, side, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    image, found = open_image(tmp_path / "image.png", size)
    assert found == side
    assert image.dtype == torch.float64
    top, left = (height // 2 * 2 - side) // 2, (width // 2 * 2 - side) // 2
    crop = pixels[top : top + side, left : left + side]
    for k in range(4):
        view = turn(image, 90 * k, (side, side))[0].movedim(0, -1) * 255
        np.testing.assert_allclose(view, np.rot90(crop, k), atol=1e-9)


def test_a_turned_square_sees_what_lies_around_it(tmp_path):
    """The corners of a square turned by any angle, from an image that is much larger."""
    pixels = picture(160, 200)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    image, side = open_image(tmp_path / "image.png", 40)
    assert max(image.shape) < 64
    whole = pixels.astype(float) / 255
    for degrees in (30, 45, 250):
        want = ndimage.rotate(whole, degrees, reshape=False, order=1)[60:100, 80:120]
        np.testing.assert_allclose(turn(image, degrees, (side, side))[0].movedim(0, -1), want, atol=1e-9)


def test_images_that_cannot_be_turned(tmp_path, refused):
    Image.fromarray(picture(200, 28)).save(tmp_path / "narrow.png")
    with refused(DataError, fix="32 or more"):
        open_image(tmp_path / "narrow.png", 256)
    with refused(UsageError, fix="256"):
        open_image(tmp_path / "narrow.png", 16)


def test_the_figure(image):
    """Variance maps of a row share their colours; a feature's are relative to its own variance, a prediction's are not."""
    found = compare([light("cnn-glands"), light("steerable-glands")], *image, steps=4, turns=4)
    figure = draw_variance(found.views, found.columns)
    maps = [axis for axis in figure.axes if axis.images and axis.images[0].get_cmap().name == "inferno"]
    assert len(maps) == 3 + 3 + 1  # A, B, object; A, B, object; object
    limits = {}
    for axis in maps:
        row = axis.get_subplotspec().rowspan.start
        limits.setdefault(row, set()).add(axis.images[0].get_clim())
    assert [len(limits[row]) for row in range(3)] == [1, 1, 1]
    plain = found.columns[0].features
    for row, (name, scale) in enumerate((("A", plain["A"].own), ("B", plain["B"].own), ("object", 1.0))):
        drawn = next(axis for axis in maps if axis.get_subplotspec().rowspan.start == row).images[0].get_array()
        assert drawn.mask[0, 0]
        assert not drawn.mask[16, 16]
        np.testing.assert_allclose(drawn[16, 16], plain[name].variance_map()[16, 16] / scale)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=40)
    with Image.open(stream) as saved:
        assert len(saved.convert("RGB").getcolors(1 << 20)) > 100


def test_the_figure_of_classifiers(image):
    found = compare([light("cnn-digits")], *image, steps=4)
    lines = [line.get_ydata() for axis in draw_variance(found.views, found.columns).axes for line in axis.lines]
    assert len(lines) == 10
    np.testing.assert_allclose(np.sum(lines, axis=0), 1, rtol=1e-6)
    report = found.columns[0].features["classes"].report()
    np.testing.assert_allclose(np.transpose(report["probabilities"]), lines)


def test_the_sheet_of_frames(image):
    found = compare([light("cnn-glands"), light("steerable-tumour")], *image, steps=6)
    sheet, rows = frame_sheet(found.views, found.columns)
    labels = [column.label for column in found.columns]
    assert rows == ["input", *(f"{labels[0]}: {name}" for name in ("A", "B", "object")), *(f"{labels[1]}: {name}" for name in ("A", "B"))]
    assert sheet.size == (6 * FRAME, 6 * FRAME)
    pixels = np.asarray(sheet).reshape(6, FRAME, 6, FRAME, 3)
    for row in range(6):
        for step in range(1, 6):
            assert (pixels[row, :, step] != pixels[row, :, 0]).any()
    middle = (found.views[0][0, :, 16, 16] * 255).round()
    np.testing.assert_allclose(pixels[0, FRAME // 2 + 1, 0, FRAME // 2 + 1], middle)
