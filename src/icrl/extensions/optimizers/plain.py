"""Options of PyTorch's SGD and RAdam."""

from typing import Literal

from icrl.config.options import option
from icrl.training.optimizers import UPDATE_RULE, AdamConfig, OptimizerConfig

MOMENTUM = 0.9  # decay of the sum of gradients in SGD


class SGDConfig(OptimizerConfig):
    name: Literal["sgd"] = option("sgd", UPDATE_RULE)

    former = {"momentum": MOMENTUM}


class RAdamConfig(AdamConfig):
    name: Literal["radam"] = option("radam", UPDATE_RULE)  # type: ignore[assignment]
