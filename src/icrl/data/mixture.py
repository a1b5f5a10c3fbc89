"""Mixture of history stores as one source of windows: batch t is a function of (seed, t).

S stores, B windows.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from icrl.contracts import Batch, ConfigError, Json
from icrl.data.history_store import Histories, open_histories
from icrl.data.windows import Windows
from icrl.randomness import cumulative, draw, integers, mix, uniform
from icrl.runs.files import check_same

if TYPE_CHECKING:
    from icrl.config.root import Config


def open_stores(config: Config) -> list[Histories]:
    """Open and check all stores that `config.histories` names.

    A single store must be recorded with this configuration. Several may have different sources, but must share the
    world and the task split, so that no training task of one is held out in another. Raises `ConfigError` if they do
    not, and the errors of `open_histories`."""
    stores = [open_histories(folder) for folder in config.histories_folders]
    compared = ("env", "tasks", "source") if len(stores) == 1 else ("env", "tasks")
    for store in stores:
        check_same(config, store.manifest["config"], compared, str(store.folder))
        for part in ("env", "tasks"):  # the same options may have meant something else to another version
            one, two = stores[0].manifest[part], store.manifest[part]
            for name in sorted(one | two):
                if one.get(name) != two.get(name):
                    raise ConfigError(
                        f"{part}.{name} is {reprlib.repr(two.get(name))} in {store.folder} and "
                        f"{reprlib.repr(one.get(name))} in {stores[0].folder}: histories of one mixture must agree"
                    )
    return stores


def described(stores: Sequence[Histories]) -> Json:
    """Names and checksums of the stores, as checkpoints keep them."""
    return [{"name": store.folder.name, "sha256": store.checksum} for store in stores]


def check_stores(stores: Sequence[Histories], before: Json, folder: Path) -> None:
    """Raise `ConfigError` unless these are the stores `before` (as `described`) that the run in `folder` learned from,
    in the same order. Their names may differ."""
    now = described(stores)
    if [store["sha256"] for store in now] != [store["sha256"] for store in before]:
        then, given = (
            ", ".join(f"{store['name']} (sha256 {store['sha256'][:12]})" for store in one) for one in (before, now)
        )
        raise ConfigError(
            f"{folder} was made with histories {then}, but this configuration has {given}: "
            "give those here too, or another name="
        )


class Mixture:
    """Windows of S stores: a store is drawn by its share, then one of its windows uniformly."""

    def __init__(self, parts: Sequence[Windows], weights: Sequence[float]) -> None:
        """`weights` are relative; if empty, every window of every store is equally likely."""
        self.parts = parts
        shares = torch.tensor(weights or [part.num_windows for part in parts], dtype=torch.float64)
        self.shares: list[float] = (shares / shares.sum()).tolist()  # [S]
        self._steps_up = cumulative(shares / shares.sum()).to(parts[0].device)
        self.num_windows = sum(part.num_windows for part in parts)
        self.largest_reward = max(part.largest_reward for part in parts)  # absolute training reward of a step

    def batch(self, seed: int, t: int, size: int, rank: int = 0, num_ranks: int = 1) -> Batch:
        """Batch `t` of the endless sequence of `seed`, `size` windows; rank r of n gets the windows r, r + n, ..."""
        lanes = torch.arange(rank, size, num_ranks, device=self._steps_up.device)
        key = mix(torch.full_like(lanes, seed), t)
        store = draw(self._steps_up, uniform(mix(key, 1), lanes))  # [B]
        each = [part.at(integers(key, lanes, part.num_windows)) for part in self.parts]
        chosen = store, torch.arange(len(lanes), device=lanes.device)
        return Batch(*(torch.stack(columns)[chosen] for columns in zip(*each, strict=True)))
