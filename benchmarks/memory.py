"""Peak memory of a training step: a model, the same with recomputation, and the same network made of plain convolutions.

    python benchmarks/memory.py [--model dsf-nuclei] [--side 256] [--batch 2]

Each variant runs in a process of its own; its figure is the process's largest resident size above what it had before the first step. A
step is forward, loss, backward and Adam. The plain network has a Conv2d of the expanded size in place of every G-convolution.
"""

import argparse
import json
import resource
import subprocess
import sys

VARIANTS = {
    "as it is": "the model, keeping everything for the backward pass",
    "recomputation": "checkpointing=True: dense units are computed again",
    "plain": "plain convolutions of the expanded size",
}


def resident() -> float:
    """Largest resident size so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(variant: str, name: str, side: int, batch: int, width: float, steps: int) -> dict[str, float]:
    import torch

    import dsfcnn
    from dsfcnn.layers.steered import SteeredConv

    torch.manual_seed(0)
    options = {"checkpointing": True} if variant == "recomputation" else {}
    model = dsfcnn.create(name, width=width, **options)
    if variant == "plain":
        for parent in list(model.modules()):
            for child_name, child in list(parent.named_children()):
                if isinstance(child, SteeredConv):
                    setattr(parent, child_name, child.plain())
    images = torch.rand(batch, 3, side, side)
    optimiser = torch.optim.Adam(model.parameters())
    before = resident()
    for _ in range(steps):
        outputs = model(images)
        maps = outputs.values() if isinstance(outputs, dict) else [outputs]
        loss = sum(y.square().mean() for y in maps)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {"megabytes": resident() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="dsf-nuclei")
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant:
        print(json.dumps(measure(options.variant, options.model, options.side, options.batch, options.width, options.steps)))
        return
    print(
        f"{options.model}, width {options.width:g}, {options.batch} images of {options.side}x{options.side}: peak memory of a training step"
    )
    print(f"{'':16}{'MB':>8}{'to plain':>10}{'to as it is':>13}")
    found = {}
    for variant in VARIANTS:
        done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--variant", variant], capture_output=True, text=True, check=True)
        found[variant] = json.loads(done.stdout)
    plain, usual = found["plain"], found["as it is"]
    for variant, figures in found.items():
        ratios = figures["megabytes"] / plain["megabytes"], figures["megabytes"] / usual["megabytes"]
        print(f"{variant:16}{figures['megabytes']:8.0f}{ratios[0]:10.2f}{ratios[1]:13.2f}")
    for variant, meaning in VARIANTS.items():
        print(f"  {variant}: {meaning}")


if __name__ == "__main__":
    main()
