"""From a trained model to ordinary layers: filters written out, batch norms merged into the convolutions before them."""

from collections import Counter
from copy import deepcopy
from inspect import signature

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from dsfcnn.errors import UsageError
from dsfcnn.layers.norm import GBatchNorm
from dsfcnn.layers.steered import PlainFieldConv, SteeredConv


def fold(model: nn.Module) -> nn.Module:
    """The same function, in evaluation, made of Conv2d and other layers that every exporter knows; ``model`` stays as it is.

    Every layer with a method ``plain()`` is replaced by what that returns. Where a batch norm follows a convolution and nothing else
    reads the convolution's output, it goes into the convolution's weights. Branches, skips and concatenations stay as the model's own
    ``forward`` has them. A ``forward`` that cannot be traced (Python decisions about tensors) still folds; only its batch norms
    remain layers of their own. One that asks ``isinstance(x, Tensor)`` or ``torch.is_grad_enabled()`` gets the tracer's answer.
    """
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        raise UsageError("fold cannot keep the forward hooks of this model; remove them first")
    model = deepcopy(model).eval()
    plain = _plain(model)
    if plain is not None:
        return plain.eval()
    traced = _trace(model)
    if traced is None:
        return _replace_layers(model, {}).eval()
    _merge_batch_norms(traced)
    traced.graph.lint()
    traced.recompile()
    return _replace_layers(traced, {}).eval()


def _trace(model: nn.Module) -> fx.GraphModule | None:
    """The model's own steps as a graph, or None where they depend on more than the steps before."""
    if any(parameter.default is not parameter.empty for parameter in signature(model.forward).parameters.values()):
        return None  # an optional argument would be taken as given
    try:
        graph = _Tracer().trace(model)
    except Exception:  # whatever a forward() raises when it is given a stand-in for a tensor
        return None
    for owner in [str(node.target).rpartition(".")[0] for node in graph.nodes if node.op == "get_attr"]:
        if _has_plain(model.get_submodule(owner)):
            raise UsageError(f"forward() reads weights of {owner!r}, which fold replaces; keep a copy of them in the model instead")
    return fx.GraphModule(model, graph, class_name=type(model).__name__)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _has_plain(m) or super().is_leaf_module(m, module_qualified_name)


def _plain(module: nn.Module) -> nn.Module | None:
    return module.plain() if _has_plain(module) else None  # type: ignore[operator]


def _has_plain(module: nn.Module) -> bool:
    """Whether it has a method ``plain``, and no ``forward`` that a subclass has put before it."""
    kinds = type(module).__mro__
    plain, forward = (next((place for place, kind in enumerate(kinds) if name in vars(kind)), None) for name in ("plain", "forward"))
    return plain is not None and (forward is None or plain <= forward)


def _replace_layers(module: nn.Module, done: dict[nn.Module, nn.Module]) -> nn.Module:
    """``done`` remembers what became of each layer: one that has two names stays one."""
    for name, child in module._modules.items():
        if child is not None:
            if child not in done:
                done[child] = _plain(child) or _replace_layers(child, done)
            setattr(module, name, done[child])
    return module


def _merge_batch_norms(traced: fx.GraphModule) -> None:
    modules = dict(traced.named_modules())
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    read = {str(node.target).rpartition(".")[0] for node in traced.graph.nodes if node.op == "get_attr"}  # by forward() itself
    for node in list(traced.graph.nodes):
        before = node.args[0] if node.args else None
        if node.op != "call_module" or not isinstance(before, fx.Node) or before.op != "call_module":
            continue
        if len(before.users) > 1 or calls[before.target] > 1 or calls[node.target] > 1:
            continue
        conv, norm = str(before.target), str(node.target)
        if read & {conv, norm} or any("forward" in vars(modules[name]) for name in (conv, norm)):
            continue
        merged = _merge(modules[conv], modules[norm])
        if merged is None:
            continue
        replace_layer(traced, conv, merged)
        modules[conv] = merged
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
        traced.delete_submodule(norm)


def replace_layer(model: nn.Module, name: str, layer: nn.Module) -> None:
    """As set_submodule, which torch has from 2.5 on."""
    owner, _, own = name.rpartition(".")
    setattr(model.get_submodule(owner), own, layer)


def _merge(conv: nn.Module, norm: nn.Module) -> nn.Module | None:
    if isinstance(conv, SteeredConv) and _has_plain(conv) and isinstance(norm, GBatchNorm):
        scale, shift = (values.repeat_interleave(conv.group.size) for values in norm.scale_and_shift())
        bias = conv.plane_bias()
        return PlainFieldConv(conv.kernel() * scale[:, None, None, None], shift if bias is None else shift + bias * scale, conv.group.size)
    if type(conv) is nn.Conv2d and type(norm) is nn.BatchNorm2d and norm.running_mean is not None:
        return fuse_conv_bn_eval(conv, norm)
    return None
