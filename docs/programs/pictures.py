"""The pictures of docs/mathematics.md that ``dsfcnn filters`` does not draw: python docs/programs/pictures.py [FOLDER]"""

import sys
from io import BytesIO
from pathlib import Path

import torch
from matplotlib.figure import Figure
from PIL import Image

from dsfcnn.basis import radial_profile, ring_widths, sample_atoms
from dsfcnn.basis.atoms import pixel_grid
from dsfcnn.data import open_dataset
from dsfcnn.filters import rotated_basis
from dsfcnn.groups import parse_group
from dsfcnn.layers import LiftConv2d

GROUP = parse_group("C8")


def rings() -> Figure:
    """Eq. (11): the four rings of 7x7 filters, and the distances at which a 7x7 square has pixels."""
    figure = Figure(figsize=(6.4, 2.6), layout="constrained")
    axes = figure.subplots()
    radius = torch.linspace(0, 4.5, 400)
    for ring, width in enumerate(ring_widths(7)):
        axes.plot(radius, radial_profile(radius, ring, width), label=f"$j$ = {ring}, $\\sigma$ = {width:g}")
    for distance in pixel_grid(7).abs().unique().tolist():
        axes.axvline(distance, ymax=0.04, color="black", linewidth=1)
    axes.set(xlabel="distance r from the centre, pixels (marks: pixels of a 7x7 square)", ylabel="τ", xlim=(0, 4.5), ylim=(0, 1.05))
    axes.legend(fontsize=8, loc="upper right")
    return figure


def sampled_atoms() -> Figure:
    """Eqs. (12), (20): atoms on the plane, above, and at the pixels of a 7x7 square, below."""
    chosen = ((1, 1), (2, 0), (2, 1), (2, 2), (2, 3), (3, 2))  # ring and frequency
    atoms, widths = sample_atoms(7), ring_widths(7)
    axis = torch.linspace(-3.5, 3.5, 281, dtype=torch.float64)
    plane = torch.complex(axis.expand(281, -1), -axis[:, None].expand(-1, 281))
    figure = Figure(figsize=(8.6, 3.2), layout="constrained")
    axes = figure.subplots(2, len(chosen))
    for column, (ring, frequency) in enumerate(chosen):
        smooth = radial_profile(plane.abs(), ring, widths[ring]) * torch.cos(frequency * plane.angle())
        pixels = atoms.values[(atoms.ring == ring) & (atoms.frequency == frequency)][0].real
        for row, picture in enumerate((smooth, pixels)):
            limit = picture.abs().max()
            axes[row, column].imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit, extent=(-3.5, 3.5, -3.5, 3.5))
            axes[row, column].set(xticks=[], yticks=[])
        places = pixel_grid(7).flatten()
        axes[0, column].plot(places.real, places.imag, ".", color="black", markersize=1.5)
        axes[0, column].set_title(f"$j$ = {ring}, $k$ = {frequency}", fontsize=9)
    axes[0, 0].set_ylabel("on the plane", fontsize=8)
    axes[1, 0].set_ylabel("at pixels", fontsize=8)
    return figure


def turned_atom() -> Figure:
    """Eq. (14): an atom turned by its phase, and an ordinary filter with the same pixels turned by interpolation."""
    atoms = sample_atoms(7)
    chosen = int(((atoms.ring == 3) & (atoms.frequency == 2)).nonzero()[0, 0])
    by_phase = GROUP.steer(atoms.values, atoms.frequency)[:, chosen, ..., 0]  # G K K
    inside = pixel_grid(7).abs() <= 3.5
    by_pixels = torch.einsum("l,glhw->ghw", by_phase[0][inside], rotated_basis(7, GROUP).moved)
    figure = Figure(figsize=(8.6, 2.7), layout="constrained")
    axes = figure.subplots(2, GROUP.size)
    limit = by_phase.abs().max()
    for row, (label, pictures) in enumerate((("by its phase", by_phase), ("by interpolation", by_pixels))):
        for element in range(GROUP.size):
            axes[row, element].imshow(pictures[element], cmap="RdBu_r", vmin=-limit, vmax=limit)
            axes[row, element].set(xticks=[], yticks=[])
            axes[0, element].set_title(f"{GROUP.degrees(element):g}°", fontsize=9)
        axes[row, 0].set_ylabel(label, fontsize=8)
    return figure


def feature_map() -> Figure:
    """Eqs. (1), (8), (10), (21): the planes of one field for an image, and for the image turned by 90 degrees."""
    atoms = sample_atoms(7)
    edges = int(((atoms.ring == 2) & (atoms.frequency == 1)).nonzero()[0, 0])
    layer = LiftConv2d(3, 1, group=GROUP)
    with torch.no_grad():
        layer.weight.zero_()[..., edges] = -1  # one real weight: bright on one side, dark on the other
    image = torch.from_numpy(open_dataset(None, "test", format="synthetic-nuclei")[0].image[-64:, :64].copy()).float() / 255
    figure = Figure(figsize=(9.0, 2.3), layout="constrained")
    axes = figure.subplots(2, GROUP.size + 1)
    for row, turned in enumerate((image, image.rot90(1))):
        with torch.no_grad():
            planes = layer(turned.permute(2, 0, 1)[None])[0, 0, :, 3:-3, 3:-3].relu()  # without the edge to the zeros outside
        axes[row, 0].imshow(turned)
        for element in range(GROUP.size):
            axes[row, element + 1].imshow(planes[element], cmap="magma", vmin=0, vmax=planes.max())
            axes[0, element + 1].set_title(f"θ = {GROUP.degrees(element):g}°", fontsize=9)
    for one in axes.flat:
        one.set(xticks=[], yticks=[])
    axes[0, 0].set_ylabel("image", fontsize=8)
    axes[1, 0].set_ylabel("turned by 90°", fontsize=8)
    return figure


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "images")
    drawings = {"rings-7x7": rings, "sampled-atoms": sampled_atoms, "turned-atom": turned_atom, "feature-map": feature_map}
    for name, draw in drawings.items():
        drawn = BytesIO()
        draw().savefig(drawn, dpi=100)
        Image.open(drawn).convert("RGB").quantize(128).save(folder / f"{name}.png", optimize=True)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
