"""How a group element moves images and G-feature maps: the left side of "turn, then compute"."""

import torch
from torch import Tensor

from dsfcnn.errors import ShapeError, UsageError
from dsfcnn.groups.group import Group


def act(x: Tensor, group: Group, element: int) -> Tensor:
    """Move maps by a group element, paper Eq. (1): (g.f)(z) = f(g^-1 z).

    (N, C, H, W) images are mirrored and turned; in (N, C, G, H, W) maps the orientations also change places, as g carries
    orientation h to g h. Invariant vectors (N, C) stay as they are. Multiples of 90 degrees are exact; other angles are
    interpolated (quintic splines, zero outside the image) and only mean something inside the inscribed disc.
    """
    if x.dim() == 5:
        if x.shape[2] != group.size:
            raise ShapeError(f"{group} acts on (N, C, {group.size}, H, W) but got {tuple(x.shape)}; give the group of the layer")
        source = [group.compose(group.inverse(element), target) for target in range(group.size)]
        x = x[:, :, source]
    elif x.dim() < 4:
        return x
    if group.mirrors(element):
        x = x.flip(-2)
    if group.is_exact(element):
        return torch.rot90(x, 4 * (element % group.orientations) // group.orientations, dims=(-2, -1))
    return _turn_by_splines(x, group.degrees(element))


def _turn_by_splines(x: Tensor, degrees: float) -> Tensor:
    """Counter-clockwise about the image centre."""
    from scipy import ndimage

    if x.shape[-1] != x.shape[-2]:
        raise UsageError(f"a map of {x.shape[-2]} x {x.shape[-1]} cannot be turned by {degrees:g} degrees; give a square one")
    planes = x.detach().cpu().double().flatten(0, -3).numpy()
    turned = [ndimage.rotate(plane, degrees, reshape=False, order=5, mode="constant") for plane in planes]
    stacked = torch.stack([torch.from_numpy(plane) for plane in turned])
    return stacked.to(x).unflatten(0, x.shape[:-2])
