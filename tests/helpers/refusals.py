"""Refusals that are listed in a file: each line a command line and what its one-line error must name."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from icrl.config.options import Options, walk
from icrl.contracts import ConfigError

# All that the rules of stages one to four are about, so that other defaults do not change them.
PLAIN = (
    *("env.max_episode_steps=20", "tasks.num_train=57", "source.num_learners=10", "source.num_envs=10"),
    *("source.unroll_length=10", "source.num_iterations=0", "source.num_env_steps=30000"),
    *("source.history_steps=30000", "source.videos_per_task=1", "source.mini_batch_length=0"),
    *("source.mini_batch_size=0", "data.history_len=0", "data.kept_steps=0", "data.num_development_tasks=6"),
    *("model.embed_dim=64", "model.num_heads=4", "model.context_len=160", "model.max_size=17"),
    *("model.position=learned", "model.add_env_time=true", "model.obs_encoding=coordinates"),
    *("trainer.mini_batch_size=32", "evals.num_evals=8", "evals.num_eval_episodes=256"),
    *("evals.num_eval_environments=16", "checkpoints.num_checkpoints=10", "summaries.num_summaries=100"),
    *("evaluation.num_episodes=40", "evaluation.checkpoint=best"),
    "policy.advantage_scale=0",
)


def refusals(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """(section, overrides, what the error names) of each line of `path`."""
    section = ""
    for line in filter(None, path.read_text().splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        else:
            overrides, named = line.split("  =>  ")
            yield section, overrides.split("  "), named.split("  &  ")


def check_refusal(load: Callable[[list[str]], object], overrides: list[str], named: Iterable[str]) -> None:
    """`load` refuses the `overrides` in one line that names all of `named`."""
    with pytest.raises(ConfigError) as refused:
        load(overrides)
    message = str(refused.value)
    assert "\n" not in message and all(part in message for part in named), message


def check_table(text: str, config: Options) -> None:
    """A table of the Markdown `text` has every option of `config`, with its meaning and stages."""
    lines = text.replace("\\|", "|").splitlines()
    for key, _, option in walk(config):
        rows = [line.split(" | ") for line in lines if f"{option.meaning} | " in line]
        assert any(f"`{key}`" in row[0] and option.stages in row[4] for row in rows), key
        assert len(option.meaning) > 3 and option.stages and option.meaning != key
