"""What the tests share: fixed seeds, modules that look trained, and the form of an error message."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Sums in the same order everywhere; and maps as small as here gain nothing from a second thread, but wait for it."""
    torch.set_num_threads(1)


@pytest.fixture
def as_trained():
    """Random statistics, scales, shifts and biases, as after training: fresh ones are nearly the identity and hide mistakes."""

    def change(module: nn.Module) -> nn.Module:
        with torch.no_grad():
            for part in module.modules():
                if isinstance(part, nn.modules.batchnorm._BatchNorm):
                    part.running_mean.normal_()
                    part.running_var.uniform_(0.5, 2)
                    part.weight.uniform_(0.5, 1.5)
                if isinstance(getattr(part, "bias", None), nn.Parameter):
                    part.bias.normal_()
        return module

    return change


@pytest.fixture
def refused():
    """Expect an error of one sentence: what was expected and what came, a semicolon, and what to do, which holds ``fix``."""

    @contextmanager
    def expect(error: type[Exception], fix: str):
        with pytest.raises(error) as caught:
            yield
        message = str(caught.value)
        assert "\n" not in message
        said, semicolon, advice = message.rpartition("; ")
        assert said, message
        assert semicolon, message
        assert fix in advice, message

    return expect
