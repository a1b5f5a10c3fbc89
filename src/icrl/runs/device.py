"""Device, precision and seed of a run, and its options as plain values."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Literal, Self

import torch
from pydantic import model_validator

from icrl.config.options import DeviceName, Options, option, refuse
from icrl.contracts import ConfigError, Json

if TYPE_CHECKING:
    from icrl.config.root import Config
    from icrl.point_game.options import PlayersConfig


class DeviceConfig(Options):
    """Device and precision of a run."""

    type: DeviceName = option(
        "auto",
        "where tensors live: auto (a GPU where there is one), cpu, cuda, or cuda:N, the GPU with the number N",
        may_change=True,
    )
    dtype: Literal["float32", "float64"] = option(
        "float32", "precision of parameters", stages="2, 3, ilql, awr, players"
    )
    amp_dtype: Literal["none", "bfloat16", "float16"] = option(
        "none", "mixed precision: matrix products in bfloat16, or in float16 with a loss scaler", stages="2, ilql, awr"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(
            re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.type) is None,
            f"device.type={self.type}: must be auto, cpu, cuda or cuda:N",
        )
        refuse(
            self.amp_dtype != "none" and self.dtype == "float64",
            f"device.amp_dtype={self.amp_dtype} needs device.dtype=float32, not {self.dtype}",
        )
        return self


def prepare(config: Config | PlayersConfig) -> torch.device:
    """Set the number of threads and the global seed; returns the device to work on."""
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    torch.manual_seed(config.seed)
    if config.checkpoints.on_crash == "ask" and not (sys.stdin and sys.stdin.isatty()):
        raise ConfigError("checkpoints.on_crash=ask needs a terminal, but stdin is not one; give save or skip")
    return device_of(config)


def device_of(config: Config | PlayersConfig) -> torch.device:
    """Device of all tensors. Raises `ConfigError` if it is a GPU that does not exist."""
    asked = config.device.type
    kind, _, number = asked.partition(":")
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and not num_gpus:
        raise ConfigError(f"device.type={asked}: no GPU is available here; use device=cpu or device=auto")
    if number and int(number) >= num_gpus:
        raise ConfigError(f"device.type={asked}: this machine has cuda:0 to cuda:{num_gpus - 1}")
    return torch.device(("cuda" if num_gpus else "cpu") if asked == "auto" else asked)


def dtype_of(config: Config | PlayersConfig) -> torch.dtype:
    """Dtype of the parameters."""
    return getattr(torch, config.device.dtype)


def recorded(config: Config | PlayersConfig) -> Json:
    """Configuration as plain values, as stored in manifests and checkpoints."""
    return config.model_dump()
