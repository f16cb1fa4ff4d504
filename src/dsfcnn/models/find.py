"""Models by name: those inside the package, or a user's own by their path."""

import json
import os
from importlib import resources
from pathlib import Path

from dsfcnn.errors import DataError, UsageError


def shipped() -> dict[str, Path]:
    """Models inside the package, by name."""
    folder = Path(str(resources.files("dsfcnn") / "models" / "shipped"))
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/config.json"))}


def find_model(model: str | Path) -> Path:
    """The folder or file that a user means by a name or path."""
    known = shipped()
    if str(model) in known:
        return known[str(model)]
    path = Path(model)
    if os.path.isfile(path) and path.suffix.lower() != ".onnx":
        raise DataError(f"{path}: a file, not a model; give the model's folder, or an ONNX file that dsfcnn export wrote")
    if os.path.exists(path):  # Path.exists would raise for a name that is too long
        return path
    names = f"one of {', '.join(known)}, or " if known else ""
    none = "" if known else " (this version ships none)"
    raise UsageError(f"no model {json.dumps(str(model), ensure_ascii=False)}{none}; give {names}a model folder or ONNX file")
