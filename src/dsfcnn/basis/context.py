"""Where fixed tensors are made."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def on_cpu(make: Callable[P, T]) -> Callable[P, T]:
    """Make ordinary CPU tensors, whatever the caller's ``torch.device()`` or ``inference_mode()``: what is cached serves everybody."""

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> T:
        with torch.inference_mode(False), torch.device("cpu"):
            return make(*args, **kwargs)

    return made
