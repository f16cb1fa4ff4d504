"""The figures of benchmarks/layers.py for a layer of escnn, as JSON on standard output.

escnn needs an environment of its own; layers.py runs this program there (``--escnn PYTHON``). Only torch and escnn are needed.
"""

import argparse
import json

import torch
from escnn import gspaces
from escnn import nn as enn
from side_by_side import KERNEL, ORIENTATIONS, build_seconds, ratios_to_plain, saved_bytes
from torch import Tensor, nn

FREQUENCY_LIMITS = (0, 2, 3, 2)  # highest frequency on rings 0 to 3 of a 7x7 filter, as in dsfcnn
SPACE = gspaces.rot2dOnR2(ORIENTATIONS)


class Layer(nn.Module):
    """A convolution between regular fields that takes and gives plain tensors."""

    def __init__(self, fields: int):
        super().__init__()
        self.type = enn.FieldType(SPACE, fields * [SPACE.regular_repr])
        self.convolution = enn.R2Conv(
            self.type, self.type, kernel_size=KERNEL, padding=KERNEL // 2, bias=False, frequencies_cutoff=frequency_limit
        )

    def forward(self, planes: Tensor) -> Tensor:
        return self.convolution(enn.GeometricTensor(planes, self.type)).tensor


def frequency_limit(radius: float) -> int:
    return FREQUENCY_LIMITS[round(float(radius))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fields", type=int, nargs="+", required=True)
    parser.add_argument("--built-fields", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    figures = {"build": build_seconds(lambda: Layer(options.built_fields)), "fields": {}}
    for fields in options.fields:
        layer = Layer(fields)
        figures["fields"][str(fields)] = {**ratios_to_plain(layer, fields, options.rounds), "saved": saved_bytes(layer)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
