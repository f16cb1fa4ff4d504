"""How exactly whole models turn with their input: every family, at 45 and at 90 degrees, as a Markdown table.

    python benchmarks/models.py             three sets of random weights
    python benchmarks/models.py --seeds 1

Random weights, normalisation by the statistics of three batches; two smooth random images of 128x128; the error is that of
dsfcnn.testing.equivariance_error on the model's logits. An untrained network shows what its layers do by themselves; training changes the
figures, not their cause.
"""

import argparse

import torch
from equivariance import smooth_noise
from torch import nn

import dsfcnn
from dsfcnn.testing import equivariance_error

FAMILIES = [
    ("cnn", {}),
    ("hnet", {"max_frequency": 1}),
    ("hnet", {"max_frequency": 2}),
    ("vfcnn", {"group": "C4"}),
    ("vfcnn", {"group": "C8"}),
    ("vfcnn", {"group": "C12"}),
    ("gcnn", {"group": "C4"}),
    ("gcnn", {"group": "C8"}),
    ("gcnn", {"group": "C12"}),
    ("steerable", {"group": "C1"}),
    ("steerable", {"group": "C4"}),
    ("steerable", {"group": "C8"}),
    ("steerable", {"group": "C12"}),
    ("p4m", {"group": "D4"}),
    ("dsf", {"group": "C8"}),
    ("sfcnn", {"group": "C16"}),  # a digits model: its figures stand in the columns of the other classifiers
]


class FirstChannel(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :1]


def with_full_statistics(network: nn.Module) -> nn.Module:
    """Normalisation by the statistics of three batches, as training would have found them."""
    network.train()
    norms = [module for module in network.modules() if hasattr(module, "momentum")]
    with torch.no_grad():
        for batch in (1, 2, 3):
            for norm in norms:
                norm.momentum = 1 / batch  # the mean over batches so far
            network(smooth_noise(4, seed=batch))
    return network.eval()


def errors(name: str, options: dict, seeds: int) -> tuple[float, float]:
    """Mean errors at 45 and 90 degrees."""
    totals = [0.0, 0.0]
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = dsfcnn.create(name, **options)
        if name.endswith("digits"):
            model = nn.Sequential(FirstChannel(), model)
        model = with_full_statistics(model)
        found = equivariance_error(model, smooth_noise(2, seed=0), group="C8", angles=(45, 90))
        totals = [total + found[angle] / seeds for total, angle in zip(totals, (45, 90))]
    return totals[0], totals[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--family", help="only this one")
    arguments = parser.parse_args()
    seeds = arguments.seeds
    print("| family | symmetry | tumour, 45 degrees | tumour, 90 degrees | nuclei, 45 degrees | nuclei, 90 degrees |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for family, options in FAMILIES:
        if arguments.family not in (None, family):
            continue
        symmetry = f"SO(2), k <= {options['max_frequency']}" if "max_frequency" in options else options.get("group", "none")
        cells = []
        for task in ("tumour", "nuclei"):
            name = "sfcnn-digits" if (family, task) == ("sfcnn", "tumour") else f"{family}-{task}"
            cells += [f"{error:.1e}" for error in errors(name, options, seeds)] if name in dsfcnn.models.names() else ["", ""]
        print(f"| {family} | {symmetry} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
