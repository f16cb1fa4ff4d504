"""Layers one after the other, with as few passes over memory as the kernel allows."""

from collections.abc import Iterator

from torch import Tensor, nn

from dsfcnn.kernels import activate, reads_fields, runs_spectral, spectral_gconv
from dsfcnn.layers.gconv import GConv2d
from dsfcnn.layers.joined import Joined
from dsfcnn.layers.norm import GBatchNorm


class FieldSequential(nn.Sequential):
    """As nn.Sequential, for layers of G-feature maps; may read several maps as if they were joined along their fields.

    Where the spectral kernel computes a G-convolution, the batch norm and ReLU before it happen while it reads, and maps are not
    joined in memory; batch norm and ReLU by themselves are one pass. A layer with hooks is called as it is, so that they see what they
    expect.
    """

    def forward(self, *maps: Tensor) -> Tensor:
        return self.read(Joined(maps))

    def read(self, joined: Joined) -> Tensor:
        layers = list(_flat(self))
        while layers:
            taken, y = _at_once(layers, joined)
            own = y is not None  # made here, and read by the next layer alone; a layer may return what it was given
            if y is None:
                y = layers[0](joined.tensor())
            layers, joined = layers[taken:], Joined([y], own)
        return joined.tensor()


def _flat(layers: nn.Sequential) -> Iterator[nn.Module]:
    for layer in layers:
        if isinstance(layer, nn.Sequential) and not _has_hooks(layer):
            yield from _flat(layer)
        else:
            yield layer


def _has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)


def _at_once(layers: list[nn.Module], joined: Joined) -> tuple[int, Tensor | None]:
    """The first few layers in one step, and how many these are; (1, None) where the first has to be called as it is."""
    match layers[:3]:
        case [GBatchNorm() as norm, nn.ReLU(), GConv2d() as conv] if _joins(joined, norm, layers[1]) and _spectral(joined, conv):
            return 3, spectral_gconv(joined.maps, conv.weight, conv.bias, conv.kernel_size, norm.before_relu(joined))
        case [GBatchNorm() as norm, nn.ReLU(), *_] if len(joined.maps) == 1 and _joins(joined, norm, layers[1]):
            return 2, activate(joined.maps[0], norm.before_relu(joined), in_place=joined.own)
        case [GConv2d() as conv, *_] if _spectral(joined, conv):
            return 1, spectral_gconv(joined.maps, conv.weight, conv.bias, conv.kernel_size)
    return 1, None


def _joins(joined: Joined, norm: GBatchNorm, relu: nn.Module) -> bool:
    """Whether batch norm and ReLU can be merged for these maps; what does not fit goes to the layers, which say why."""
    if _has_hooks(norm) or _has_hooks(relu) or not joined.fit(norm.num_features):
        return False
    return reads_fields([*joined.maps, *norm.parameters()]) and (joined.numbers() > 1 or not norm.training)


def _spectral(joined: Joined, conv: GConv2d) -> bool:
    if _has_hooks(conv) or conv.filters != "steerable" or not joined.fit(conv.in_fields, conv.group.size):
        return False
    return runs_spectral(joined.maps, conv.weight, conv.kernel_size, conv.group)
