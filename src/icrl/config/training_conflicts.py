"""Conflicts among the options of the gradient loop: the optimizer, batches, and where is computed."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from icrl.config.schedules import values_of
from icrl.config.source_conflicts import Conflicts
from icrl.config.training_schema import IDLE, OPTIMIZERS, DeviceConfig

if TYPE_CHECKING:
    from icrl.config.root import Config


def of_optimizer(config: "Config") -> Conflicts:
    optimizer, amp_dtype = config.optimizer, config.device.amp_dtype
    name = optimizer.name
    return [
        *(
            (
                option not in OPTIMIZERS[name] and any(value != idle for value in values_of(vars(optimizer)[option])),
                f"optimizer.{option}={vars(optimizer)[option]} does nothing with optimizer.name={name}: give "
                f"optimizer.{option}={idle}, as the preset optimizer={name} does",
            )
            for option, idle in IDLE.items()
        ),
        *(
            (
                isinstance(value, Mapping) and value.get("progress") == "env_steps",
                f"optimizer.{option}={value}: the updates of trainer.num_iterations take no env steps; progress must "
                "be percent, iterations or updates",
            )
            for option, value in vars(optimizer).items()
        ),
        (
            name == "mtadam" and amp_dtype == "float16",
            "optimizer.name=mtadam brings gradients to one norm by itself and has no use for the loss scaler of "
            "device.amp_dtype=float16; give device.amp_dtype=bfloat16 or none",
        ),
    ]


def of_trainer(config: "Config") -> Conflicts:
    trainer, model = config.trainer, config.model
    size, parts = trainer.mini_batch_size, trainer.gradient_accumulation_steps
    return [
        (
            not trainer.evaluate and config.evaluation.checkpoint == "best",
            "trainer.evaluate=false finds no best checkpoint; give evaluation.checkpoint=last",
        ),
        (
            trainer.mini_batch_length > model.context_len,
            f"trainer.mini_batch_length={trainer.mini_batch_length} is longer than "
            f"model.context_len={model.context_len}",
        ),
        (
            0 < trainer.mini_batch_length < model.context_len and model.position == "learned",
            f"trainer.mini_batch_length={trainer.mini_batch_length} leaves positions untrained with "
            f"model.position=learned and model.context_len={model.context_len}",
        ),
        (
            size % parts != 0,
            f"trainer.gradient_accumulation_steps={parts} must divide trainer.mini_batch_size={size}",
        ),
        (
            trainer.empty_cache and config.device.type == "cpu",
            "trainer.empty_cache=true: device.type=cpu has no cache to empty",
        ),
    ]


def of_device(device: DeviceConfig) -> Conflicts:
    """Of where is computed, which all programs have alike."""
    return [
        (
            re.fullmatch(r"auto|cpu|cuda(:\d+)?", device.type) is None,
            f"device.type={device.type}: must be auto, cpu, cuda or cuda:N",
        ),
        (
            device.amp_dtype != "none" and device.dtype == "float64",
            f"device.amp_dtype={device.amp_dtype} needs device.dtype=float32, not {device.dtype}",
        ),
    ]
