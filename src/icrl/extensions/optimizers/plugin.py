"""The optimizers of this extension, and the rule of what fits them."""

from collections.abc import Iterator
from functools import partial

from torch import optim

from icrl.app.root import Config, rule
from icrl.extensions.optimizers.lamb import Lamb, LambConfig
from icrl.extensions.optimizers.mtadam import MTAdam, MTAdamConfig, step_by_term
from icrl.extensions.optimizers.plain import MOMENTUM, RAdamConfig, SGDConfig
from icrl.training.optimizers import Rule, register

register("sgd", Rule(SGDConfig, partial(optim.SGD, momentum=MOMENTUM)))
register("radam", Rule(RAdamConfig, optim.RAdam))
register("lamb", Rule(LambConfig, Lamb))
register("mtadam", Rule(MTAdamConfig, MTAdam, step_by_term))


@rule
def _in_precision(config: Config) -> Iterator[str]:
    if config.optimizer.name == "mtadam" and config.device.amp_dtype == "float16":
        yield "$optimizer.name undoes the loss scaling of $device.amp_dtype: give device.amp_dtype=bfloat16 or none"
