"""Options of sources that can learn from what was played long ago, or by others."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from icrl.app.root import Config
from icrl.config.options import Name, option
from icrl.data.history_store import checksum_of, read_manifest
from icrl.runs.files import PROJECT
from icrl.sources.options import NEWEST_ALONE, Conflicts, NotNegative, SourceConfig, env_steps

NoneOrMore = BeforeValidator(lambda value: [] if value == "none" else value if isinstance(value, list) else [value])


class ReplayConfig(SourceConfig):
    """Sources that can learn from what was played long ago, or by others."""

    replay_buffer_length: int = option(1000, "newest env steps of each environment in the replay buffer", ge=1)
    whole_replay_buffer_training: bool = option(True, "sweep over the whole replay (false: draw one mini-batch)")
    clear_replay_buffer: bool = option(True, "learn from the newest unroll only, and clear it afterwards")
    priority_replay: bool = option(False, "draw windows of large TD error more often")
    priority_replay_alpha: NotNegative = option(0.7, "priority is (|TD error| + 1e-6)^alpha")
    priority_replay_beta: NotNegative = option(0.4, "a window's weight is priority^(-beta), over the largest drawn")
    offline_buffer_dir: Annotated[list[Name], NoneOrMore] = option(
        [], "names of recorded histories of the same tasks to learn from too (none or []: none)"
    )
    rl_train_after_update_steps: int = option(0, "iterations on recorded histories alone, before any env step", ge=0)

    former = {
        **{"priority_replay_eps": 1e-6, "offline_loss_weight": 1.0},
        **{"offline_buffer_range": "first", "offline_buffer_every": 1, "offline_buffer_length": 0},
        **{"rl_train_every_update_steps": 1},
    }

    @property
    def replays(self) -> bool:  # pyrefly: ignore[bad-override]
        return not self.clear_replay_buffer

    @property
    def draws(self) -> bool:
        """True if it draws mini-batches, in place of sweeps."""
        return not self.whole_replay_buffer_training

    @property
    def has_offline(self) -> bool:
        """True if it learns from histories of other learners too."""
        return bool(self.offline_buffer_dir)

    @property
    def pretraining(self) -> int:  # pyrefly: ignore[bad-override]
        return self.rl_train_after_update_steps

    def window_length(self, unroll: int) -> int:
        """Steps of a training window, after an `unroll`."""
        return self.mini_batch_length or (1 if self.replays else unroll)

    def windows_in(self, unroll: int, played: int) -> int:
        length = self.window_length(unroll)
        steps = min(played, self.replay_buffer_length) if self.replays else unroll
        return max(steps - length + 1, 0) if self.draws else steps // length

    def batches_in(self, windows: int) -> int:
        if not windows:
            return int(self.has_offline)
        return 1 if self.draws else super().batches_in(windows)

    def alone(self) -> dict[str, Any]:
        return {"offline_buffer_dir": [], "rl_train_after_update_steps": 0}

    def inputs(self, config: Config) -> dict[str, str]:
        if not (names := self.offline_buffer_dir):
            return {}
        folders = [PROJECT / config.root / "histories" / name for name in names]
        return {"source.offline_buffer_dir": "+".join(checksum_of(read_manifest(folder)) for folder in folders)}

    def conflicts(self) -> Conflicts:
        asked = self.num_env_steps or self.num_iterations
        yield (
            asked and not env_steps(self),
            "$num_iterations must be above $rl_train_after_update_steps, which make no env steps",
        )
        yield from super().conflicts()
        yield self.shared and (self.replays or self.has_offline), NEWEST_ALONE
        kept, length, size = self.replay_buffer_length, self.mini_batch_length, self.mini_batch_size
        per_env, offline, replays = env_steps(self) // self.num_envs, self.has_offline, self.replays
        too_early = "$initial_collect_steps is more than is kept: $replay_buffer_length of each of $num_envs"
        yield replays and self.initial_collect_steps > kept * self.num_envs, too_early
        too_long = f"$mini_batch_length exceeds $replay_buffer_length, or the {per_env} env steps per environment"
        yield replays and length > min(kept, per_env), too_long
        sizeless = "$mini_batch_size draws nothing %s: give a size above 0"
        yield self.draws and not size, sizeless % "with $whole_replay_buffer_training"
        twice = len({*self.offline_buffer_dir}) < len(self.offline_buffer_dir)
        yield twice, "$offline_buffer_dir must have no duplicates"
        yield offline and not size, sizeless % "from $offline_buffer_dir"
        unknown = "$offline_buffer_dir needs a length; $mini_batch_length is the unroll with $clear_replay_buffer"
        yield offline and not length and not replays, unknown
        evenly = "$priority_replay draws windows by priority, so $whole_replay_buffer_training must be false"
        yield self.priority_replay and not self.draws, evenly
        empty = "$clear_replay_buffer keeps nothing to draw from; it needs source.whole_replay_buffer_training=true"
        yield self.draws and not replays, empty
        if not offline:
            yield from self.unused(("offline_", "rl_"), "has no effect with $offline_buffer_dir: name histories there")
