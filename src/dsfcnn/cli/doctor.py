"""``dsfcnn doctor``: what is installed, what is missing, and how to get it."""

import json as json_format
import platform
import re
import subprocess
import sys
from importlib import metadata
from typing import Annotated

import typer

# What each extra is for, in a user's words.
_PURPOSES = {
    "wsi": "whole slides and QuPath files",
    "hdf5": "PCam as its owners distribute it",
    "dask": "many slides on several machines",
    "onnx": "export to ONNX",
    "tensorboard": "curves of a training in TensorBoard",
    "viewer": "the viewer in the browser",
    "docs": "the documentation as a site",
    "test": "the tests",
    "browser": "the tests in a browser",
}


def doctor(json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False) -> None:
    """Say what is installed, what is missing, and how to get it."""
    found = _inspect()
    if json:
        print(json_format.dumps(found, indent=2))
        return
    print(f"dsfcnn {found['dsfcnn']}, Python {found['python']} on {found['machine']}")
    print(f"G-convolutions: {found['kernel']}")
    for part in [found["required"], *found["extras"]]:
        print(f"\n{part['title']}")
        for name, version in part["packages"].items():
            print(f"  {name:<18}{version or 'missing'}")
        if part["missing"]:
            print(f"  get it with: {part['command']}")


def _inspect() -> dict:
    required: dict[str, list[str]] = {"": []}
    for line in metadata.requires("dsfcnn") or []:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        if name and name[0] != "dsfcnn":
            required.setdefault(extra[1] if extra else "", []).append(name[0])
    return {
        "dsfcnn": metadata.version("dsfcnn"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "kernel": _kernel(),
        "required": _part("always needed", required.pop(""), "pip install dsfcnn"),
        "extras": [
            _part(f"[{extra}] {_PURPOSES.get(extra, '')}".rstrip(), names, f"pip install 'dsfcnn[{extra}]'") | {"extra": extra}
            for extra, names in required.items()
        ],
    }


def _kernel() -> str:
    """In a process of its own: a kernel that crashes must not take the doctor with it, and torch stays unloaded here."""
    look = "from dsfcnn.kernels.library import load; print(load().reason)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
    if done.returncode != 0:
        return "the kernel crashes here; set DSFCNN_BACKEND=dense and report it, please"
    reason = done.stdout.strip()
    return f"dense, because {reason}" if reason else "spectral"


def _part(title: str, names: list[str], command: str) -> dict:
    packages = {name: _version(name) for name in names}
    return {"title": title, "packages": packages, "missing": [n for n, v in packages.items() if v is None], "command": command}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
