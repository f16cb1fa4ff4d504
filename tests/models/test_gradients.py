"""Every parameter of every model learns: its gradient is there, finite and not zero."""

import pytest
import torch

from dsfcnn.models import names

VARIANTS = [
    *((name, {}) for name in names()),
    ("dsf-nuclei", {"checkpointing": True}),
    ("dsf-tumour", {"group": "D4"}),
    ("gcnn-digits", {"group": "C4"}),
    ("steerable-glands", {"group": "C1"}),
    ("vfcnn-tumour", {"group": "C4"}),
    ("hnet-digits", {"max_frequency": 2}),
]


@pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value
)
def test_every_parameter_learns(name, options, small, images, outputs):
    model = small(name, **options).train()
    found = outputs(model, images(name, 24, 24, batch=6))
    sum((values * torch.randn_like(values)).sum() for values in found.values()).backward()
    gradients = {parameter: values.grad for parameter, values in model.named_parameters()}
    assert [parameter for parameter, gradient in gradients.items() if gradient is None] == []
    assert [parameter for parameter, gradient in gradients.items() if not gradient.isfinite().all()] == []
    assert [parameter for parameter, gradient in gradients.items() if not gradient.abs().max() > 1e-8] == []


@pytest.mark.parametrize("name", ["dsf-nuclei", "steerable-digits", "hnet-glands"])
def test_no_number_of_a_steerable_filter_is_dead(name, small, images, outputs):
    """Not the tensor alone: each weight in it has an effect."""
    model = small(name).train()
    found = outputs(model, images(name, 24, 24, batch=6))
    sum((values * torch.randn_like(values)).sum() for values in found.values()).backward()
    assert [parameter for parameter, values in model.named_parameters() if (values.grad == 0).any()] == []
