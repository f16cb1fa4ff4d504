"""Layers one after the other, with as few passes over memory as the kernel allows."""

from collections.abc import Iterator

from torch import Tensor, nn

from dsfcnn.kernels import activate, reads_fields, spectral_gconv
from dsfcnn.layers.gconv import GConv2d
from dsfcnn.layers.joined import Joined
from dsfcnn.layers.norm import GBatchNorm


class FieldSequential(nn.Sequential):
    """As nn.Sequential, for layers of G-feature maps; may read several maps as if they were joined along their fields.

    Where the spectral kernel computes a G-convolution, the batch norm and ReLU before it happen while it reads, and maps are not
    joined in memory; batch norm and ReLU by themselves are one pass. A layer with hooks, or with a ``forward`` of its own, is called as it
    is.
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
        if isinstance(layer, nn.Sequential) and as_made(layer, nn.Sequential, FieldSequential):
            yield from _flat(layer)
        else:
            yield layer


def has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)


def as_made(layer: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Of a kind, with its ``forward`` and without hooks: what is done for a layer instead of a call would pass by all of these."""
    same = isinstance(layer, kinds) and any(type(layer).forward is kind.forward for kind in kinds)
    return same and "forward" not in vars(layer) and not has_hooks(layer)


def _at_once(layers: list[nn.Module], joined: Joined) -> tuple[int, Tensor | None]:
    """The first few layers in one step, and how many these are; (1, None) where the first has to be called as it is."""
    match layers[:3]:
        case [GBatchNorm() as norm, nn.ReLU(), GConv2d() as conv] if _joins(joined, norm, layers[1]) and _spectral(joined, conv):
            return 3, spectral_gconv(joined.maps, conv.weight, conv.bias, conv.kernel_size, conv.group, norm.before_relu(joined))
        case [GBatchNorm() as norm, nn.ReLU(), *_] if len(joined.maps) == 1 and _joins(joined, norm, layers[1]):
            return 2, activate(joined.maps[0], norm.before_relu(joined), in_place=joined.own)
        case [GConv2d() as conv, *_] if _spectral(joined, conv):
            return 1, spectral_gconv(joined.maps, conv.weight, conv.bias, conv.kernel_size, conv.group)
    return 1, None


def _joins(joined: Joined, norm: GBatchNorm, relu: nn.Module) -> bool:
    """Whether batch norm and ReLU can be merged for these maps; what does not fit goes to the layers, which say why."""
    own = type(norm).batch_moments is not GBatchNorm.batch_moments and not has_hooks(norm)  # one that has its own way to do this
    if not (own or as_made(norm, GBatchNorm)) or not as_made(relu, nn.ReLU) or not joined.fit(norm.num_features):
        return False
    numbers = [x for x in (norm.weight, norm.bias, norm.running_mean, norm.running_var) if x is not None]
    if any(x.shape != (norm.num_features,) for x in numbers) or not reads_fields([*joined.maps, *numbers]):
        return False
    return joined.numbers() > 1 or not norm.training


def _spectral(joined: Joined, conv: GConv2d) -> bool:
    return as_made(conv, GConv2d) and joined.fit(conv.in_fields, conv.group.size) and conv.runs_spectral(joined.maps)
