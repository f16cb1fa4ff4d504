"""The paper's models: DSF-CNN, the networks it is compared with, and model folders."""

from dsfcnn.models.checkpoint import check_config, load_model, read_config, save_model
from dsfcnn.models.find import find_model, shipped
from dsfcnn.models.registry import count_parameters, create, names

__all__ = ["check_config", "count_parameters", "create", "find_model", "load_model", "names", "read_config", "save_model", "shipped"]
