"""A model for other programs: ONNX, TorchScript or PyTorch's pt2, made of ordinary layers, and back from ONNX into ``dsfcnn predict``.

What is exported takes float RGB in [0, 1], (N, 3, H, W), for any number of images and every height and width that is a multiple of 16 (pt2:
from 32), and gives logits by head. The model folder's config goes along, so that the file alone says its task and resolution.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsfcnn.errors import DataError, UsageError
from dsfcnn.files import atomic_write
from dsfcnn.inference.network import OnnxNetwork, TorchNetwork
from dsfcnn.inference.tiles import ALIGNMENT
from dsfcnn.layers import MaxPool, MeanPool, Upsample
from dsfcnn.layers.fold import fold, replace_layer
from dsfcnn.layers.pool import MagnitudePool
from dsfcnn.models import check_config, load_model, read_config
from dsfcnn.slides.source import shown

Format = Literal["onnx", "torchscript", "pt2"]
FORMATS = ("onnx", "torchscript", "pt2")
_CONFIG, _PLANES = "dsfcnn", "dsfcnn.planes"  # what is stored beside the network
_LARGEST = 4096  # sides up to this many times 16 pixels


def export(folder: Path, path: Path, format: Format) -> None:
    """Write the model of a folder in a format of other programs."""
    if format not in FORMATS:
        raise UsageError(f"no format {format!r}; use one of {', '.join(FORMATS)}")
    model, config = load_model(folder), read_config(folder)
    digits = config.get("task") == "digits"
    example = torch.rand(2, 1, 28, 28) if digits else torch.rand(2, 3, 4 * ALIGNMENT, 6 * ALIGNMENT)
    stored = {_CONFIG: json.dumps(config), _PLANES: str(1 if digits else TorchNetwork(model).planes(with_heads=True))}
    plain = fold(model)
    _only_even_sizes(plain)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # about what the exporters trace; the result is checked below
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        content = _WRITERS[format](plain, example, stored)
    with atomic_write(path) as stream:
        stream.write(content)


class _Even(nn.Module):
    """Pooling or Upsample for even sizes alone, without the questions which exporters cannot write down."""

    def __init__(self, resize: Callable[[Tensor], Tensor]):
        super().__init__()
        self.resize = resize

    def forward(self, x: Tensor, size: Any = None) -> Tensor:
        planes = self.resize(x.flatten(1, 2) if x.dim() == 5 else x)
        return planes.reshape(*x.shape[:3], *planes.shape[-2:]) if x.dim() == 5 else planes


_EVEN: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    MaxPool: partial(F.max_pool2d, kernel_size=2),
    MeanPool: partial(F.avg_pool2d, kernel_size=2),
    Upsample: partial(F.interpolate, scale_factor=2.0, mode="bilinear", align_corners=False),
}


def _only_even_sizes(plain: nn.Module) -> None:
    for name, layer in list(plain.named_modules()):
        if type(layer) in _EVEN:
            replace_layer(plain, name, _Even(_EVEN[type(layer)]))


def _torchscript(plain: nn.Module, example: Tensor, stored: dict[str, str]) -> bytes:
    traced = torch.jit.trace(plain, example, strict=False, check_trace=False)  # not strict: the outputs are a dict
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer, _extra_files={name: text.encode() for name, text in stored.items()})
    return buffer.getvalue()


def _pt2(plain: nn.Module, example: Tensor, stored: dict[str, str]) -> bytes:
    images = torch.export.Dim("images", min=1, max=4096)
    shapes: dict[int, Any] = {0: images}
    if example.shape[1] == 3:
        height, width = (torch.export.Dim(name, min=2, max=_LARGEST) for name in ("height", "width"))
        shapes |= {2: ALIGNMENT * height, 3: ALIGNMENT * width}
    buffer = io.BytesIO()
    program = torch.export.export(plain, (example,), dynamic_shapes=(shapes,))
    torch.export.save(program, buffer, extra_files=dict(stored))
    return buffer.getvalue()


def _onnx(plain: nn.Module, example: Tensor, stored: dict[str, str]) -> bytes:
    try:
        import onnx
    except ImportError as error:
        raise UsageError("ONNX needs more packages; get them with: pip install 'dsfcnn[onnx]'") from error
    if any(isinstance(layer, MagnitudePool) for layer in plain.modules()):
        raise UsageError("this kind of network (hnet, vfcnn) has layers that ONNX cannot hold; export it as torchscript or pt2")
    outputs = plain(example)
    heads = list(outputs) if isinstance(outputs, dict) else ["class"]
    free = {0: "images"} if example.shape[1] == 1 else {0: "images", 2: "height", 3: "width"}
    axes = {"image": free, **{head: free if isinstance(outputs, dict) else {0: "images"} for head in heads}}
    buffer = io.BytesIO()
    # The tracing exporter: the newer one takes minutes over free sizes (measured: 71 s before it begins to write, for dsf-nuclei).
    torch.onnx.export(plain, (example,), buffer, dynamo=False, input_names=["image"], output_names=heads, dynamic_axes=axes)  # type: ignore[arg-type]
    model = onnx.load_from_string(buffer.getvalue())
    onnx.helper.set_model_props(model, stored)
    return model.SerializeToString()


_WRITERS = {"onnx": _onnx, "torchscript": _torchscript, "pt2": _pt2}


def load_onnx(path: Path) -> tuple[OnnxNetwork, dict[str, Any]]:
    """The network and config of a file that ``export`` wrote."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UsageError("ONNX files need onnxruntime; get it with: pip install 'dsfcnn[onnx]'") from error
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4  # its complaints about damaged files are said once, below
    settings.intra_op_num_threads = torch.get_num_threads()
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), settings, providers=["CPUExecutionProvider"])
        stored = session.get_modelmeta().custom_metadata_map
        config, planes = json.loads(stored[_CONFIG]), int(stored[_PLANES])
        if not isinstance(config, dict):
            raise ValueError("config")
        check_config(config, shown(path))
    except DataError:
        raise
    except Exception as error:  # onnxruntime has classes of its own for every kind of damage
        raise DataError(f"{shown(path)}: not a model that dsfcnn export wrote; export it again") from error
    return OnnxNetwork(path, session, planes), config
