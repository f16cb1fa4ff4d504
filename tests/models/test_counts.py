"""Parameters and widths are those that the paper's tables follow from.

The figures below were derived from the paper's rules by hand, layer by layer, before there was a model to count.
"""

import math

import pytest
import torch
from torch import nn

from dsfcnn.layers.harmonic import HarmonicConv2d
from dsfcnn.layers.steered import SteeredConv
from dsfcnn.layers.vector import VectorConv2d
from dsfcnn.models import count_parameters, create, names
from dsfcnn.models.published import PUBLISHED

HISTOLOGY = {
    "cnn": (22, 24, 32, 44, 48),
    "hnet 1": (39, 43, 57, 78, 86),
    "hnet 2": (30, 33, 44, 60, 66),
    "vfcnn C4": (15, 16, 23, 32, 33),
    "vfcnn C8": (15, 16, 23, 32, 33),
    "vfcnn C12": (15, 16, 23, 32, 33),
    "gcnn C4": (11, 12, 16, 22, 24),
    "gcnn C8": (8, 8, 11, 16, 17),
    "gcnn C12": (6, 7, 10, 12, 14),
    "steerable C1": (33, 35, 48, 65, 71),
    "steerable C4": (17, 17, 24, 33, 35),
    "steerable C8": (11, 13, 17, 23, 26),
    "steerable C12": (10, 11, 13, 19, 20),
}
DIGITS = {
    "cnn": (22, 22, 32, 32, 48, 48, 48),
    "hnet 1": (40, 40, 58, 58, 87, 87, 87),
    "hnet 2": (31, 31, 45, 45, 67, 67, 67),
    "gcnn C4": (11, 11, 16, 16, 24, 24, 24),
    "gcnn C8": (8, 8, 11, 11, 17, 17, 17),
    "gcnn C12": (6, 6, 9, 9, 14, 14, 14),
    "vfcnn C8": (16, 16, 23, 23, 34, 34, 34),
    "vfcnn C12": (16, 16, 23, 23, 34, 34, 34),
    "steerable C8": (12, 12, 17, 17, 25, 25, 25),
    "steerable C12": (9, 9, 14, 14, 21, 21, 21),
}

# Task, variant, parameters counted as the paper does, the paper's own figure in thousands.
COUNTS = [
    ("tumour", "cnn", 564_368, 564),
    ("tumour", "hnet 1", 552_551, 553),
    ("tumour", "hnet 2", 543_543, 542),
    ("tumour", "vfcnn C4", 556_851, 556),
    ("tumour", "vfcnn C8", 556_851, 556),
    ("tumour", "vfcnn C12", 556_851, 556),
    ("tumour", "gcnn C4", 560_107, 561),
    ("tumour", "gcnn C8", 559_482, 557),
    ("tumour", "gcnn C12", 556_308, 557),
    ("tumour", "steerable C1", 557_976, 553),
    ("tumour", "steerable C4", 552_828, 546),
    ("tumour", "steerable C8", 565_680, 565),
    ("tumour", "steerable C12", 549_042, 545),
    ("tumour", "dsf C8", 2_203_114, 2200),
    ("glands", "cnn", 985_917, 984),
    ("glands", "gcnn C4", 982_660, 982),
    ("glands", "gcnn C8", 982_543, 988),
    ("glands", "gcnn C12", 974_925, 979),
    ("glands", "steerable C1", 972_731, 981),
    ("glands", "steerable C4", 972_113, 984),
    ("glands", "steerable C8", 988_225, 989),
    ("glands", "steerable C12", 969_471, 976),
    ("glands", "dsf C8", 3_656_151, 3700),
    ("nuclei", "cnn", 988_511, 984),
    ("nuclei", "gcnn C4", 984_198, 982),
    ("nuclei", "gcnn C8", 983_793, 988),
    ("nuclei", "gcnn C12", 975_983, 979),
    ("nuclei", "steerable C1", 976_381, 981),
    ("nuclei", "steerable C4", 974_227, 984),
    ("nuclei", "steerable C8", 989_763, 989),
    ("nuclei", "steerable C12", 970_913, 976),
    ("nuclei", "dsf C8", 3_657_593, 3700),
    ("digits", "cnn", 416_892, 416),
    ("digits", "hnet 1", 423_858, 418),
    ("digits", "hnet 2", 419_623, 414),
    ("digits", "gcnn C4", 413_797, 413),
    ("digits", "gcnn C8", 410_356, 407),
    ("digits", "gcnn C12", 408_172, 411),
    ("digits", "vfcnn C8", 421_692, 418),
    ("digits", "vfcnn C12", 421_692, 418),
    ("digits", "steerable C8", 411_100, 416),
    ("digits", "steerable C12", 420_546, 424),
]


def build(name, **options):
    with torch.device("meta"):
        return create(name, **options)


def variant_of(task, variant):
    family, _, detail = variant.partition(" ")
    options = {"max_frequency": int(detail)} if family == "hnet" else {"group": detail} if detail else {}
    return f"{family}-{task}", options


def label(name, options):
    return " ".join([name, *map(str, options.values())])


@pytest.mark.parametrize(("task", "variant", "count", "thousands"), COUNTS, ids=lambda value: str(value).replace(" ", "-"))
def test_counts(task, variant, count, thousands):
    name, options = variant_of(task, variant)
    assert count_parameters(build(name, **options))["paper"] == count
    assert abs(count / 1000 / thousands - 1) <= 0.015


def test_the_published_figures_are_the_papers():
    """Every row of the tables above is published under the same figure, and beside them p4m-DenseNet and SFCNN."""
    wanted = {label(*variant_of(task, variant)): thousands for task, variant, _, thousands in COUNTS}
    wanted |= {"p4m-tumour D4": 119, "sfcnn-digits C16": 3300}
    assert {label(row.name, row.options): row.parameters for row in PUBLISHED} == wanted
    assert len(PUBLISHED) == len(wanted)


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: label(row.name, row.options).replace(" ", "-"))
def test_every_published_row_is_met(row):
    """To 1.5 %; p4m-DenseNet, whose first layer the paper does not describe, to 5 %."""
    allowed = 0.05 if row.name.startswith("p4m") else 0.015
    assert abs(count_parameters(build(row.name, **row.options))["paper"] / 1000 / row.parameters - 1) <= allowed


def encoder_widths(model):
    """Fields that each convolution of the encoder writes."""
    widths = []
    for layer in model.encoder.modules():
        if isinstance(layer, SteeredConv | HarmonicConv2d | VectorConv2d):
            widths.append(layer.out_fields)
        elif isinstance(layer, nn.Conv2d):
            widths.append(layer.out_channels)
    return tuple(widths)


@pytest.mark.parametrize("task", ["tumour", "glands", "nuclei"])
@pytest.mark.parametrize("variant", HISTOLOGY)
def test_widths_of_histology_models(task, variant):
    """Two convolutions of the same width at each level."""
    name, options = variant_of(task, variant)
    assert encoder_widths(build(name, **options)) == tuple(width for width in HISTOLOGY[variant] for _ in range(2))


@pytest.mark.parametrize("variant", DIGITS)
def test_widths_of_digit_models(variant):
    name, options = variant_of("digits", variant)
    assert encoder_widths(build(name, **options)) == DIGITS[variant]


def rule(variant):
    """How many times as wide as the plain CNN, so that 7x7 filters cost the same: the square root of the numbers that each needs."""
    family, _, detail = variant.partition(" ")
    number = int(detail.lstrip("C") or 1)
    return {
        "cnn": 1,
        "gcnn": 1 / math.sqrt(number),
        "steerable": 7 / math.sqrt(22 * number),
        "vfcnn": 1 / math.sqrt(2),
        "hnet": 7 / math.sqrt((2 * number + 1) * (4 + 1)),
    }[family]


@pytest.mark.parametrize("base", [HISTOLOGY, DIGITS], ids=["histology", "digits"])
def test_widths_are_the_rule_rounded_down_or_up(base):
    """All but three widths of H-Net, which are a little below: its batch norms are larger than the CNN's."""
    exceptions = {}
    for variant, widths in base.items():
        for level, (width, plain) in enumerate(zip(widths, base["cnn"])):
            exact = plain * rule(variant)
            if width not in (math.floor(exact + 1e-9), math.ceil(exact - 1e-9)):
                exceptions[variant, level] = width / exact
    documented = {("hnet 1", 3), ("hnet 2", 3), ("hnet 2", 4)} if base is HISTOLOGY else set()
    assert set(exceptions) == documented
    assert all(0.97 < ratio < 1 for ratio in exceptions.values())


@pytest.mark.parametrize("variant", DIGITS)
def test_digit_widths_are_the_rule_rounded(variant):
    assert DIGITS[variant] == tuple(round(plain * rule(variant)) for plain in DIGITS["cnn"])


@pytest.mark.parametrize("name", names())
def test_live_parameters_are_those_that_are_stored(name):
    model = build(name)
    count = count_parameters(model)
    assert count["live"] == sum(parameter.numel() for parameter in model.parameters())
    buffers = {buffer for buffer, _ in model.named_buffers()}
    assert count["live"] == sum(tensor.numel() for key, tensor in model.state_dict().items() if key not in buffers)
    assert 0 < count["live"] <= count["paper"]


@pytest.mark.parametrize(("name", "live"), [("dsf-nuclei", 2_953_633 - 2 * 96), ("dsf-glands", 2_952_191 - 96)])
def test_dead_weights_are_not_stored(name, live):
    """Nor the imaginary parts of frequency 0, nor the biases that a batch norm takes away (96 in each head)."""
    assert count_parameters(build(name))["live"] == live


@pytest.mark.parametrize("name", names())
def test_narrower_models_are_lighter(name):
    counts = [count_parameters(build(name, width=width))["live"] for width in (0.25, 0.5, 1.0)]
    assert counts[0] < counts[1] < counts[2]
    assert 0.15 < counts[1] / counts[2] < 0.4  # about a quarter: fields read times fields written


def test_counting_takes_any_model():
    """Layers without a count of their own count what they hold."""
    assert count_parameters(nn.Sequential(nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4))) == {"paper": 312, "live": 312}
