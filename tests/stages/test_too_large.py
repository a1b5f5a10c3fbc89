"""What does not fit in memory or on the disk is refused by each program: in one line with the options that make it
large, and before anything is written."""

import sys
from pathlib import Path

import pytest
from harness import files_of, run

from icrl.config.compose import load_config, load_players_config
from icrl.contracts import ConfigError
from icrl.programs import search_params, train_players
from icrl.runs import memory

FREE = 10**8  # bytes; what the finished run has taken is less
GPT = ("name=x", "histories=tiny")
LONG = ("source.num_env_steps=100000000", "source.history_steps=100000000")
HIDDEN, UNROLL, ONCE = "source.hidden_size=65536", "source.unroll_length=1000000", "checkpoints.checkpoint_interval=0"
EVALUATED = ("evals.num_eval_environments=50000", "evals.num_eval_episodes=50000")

TOO_LARGE = [  # program, options, and how the refusal begins
    ("train_agents", ("source.num_learners=10000",), "source.num_learners=10000 x evals.num_eval_environments=8 x"),
    ("train_agents", (HIDDEN, "source.num_learners=100"), f"source.num_learners=100 x {HIDDEN} needs"),
    ("train_agents", (UNROLL, "source.num_env_steps=2000000"), f"source.num_learners=1 x source.num_envs=2 x {UNROLL}"),
    ("train_agents", LONG, "tasks.num_train=5 x source.num_learners=1 x source.history_steps=100000000 needs"),
    ("train_agents", (*LONG, ONCE), f"source.num_learners=1 x source.num_envs=2 x {ONCE} needs"),
    ("train_agents", EVALUATED, "source.num_learners=1 x evals.num_eval_environments=50000 x"),
    ("train_gpt", (*GPT, "model.embed_dim=4096"), "model.num_layers=1 x model.embed_dim=4096 x model.ff_dim=16 needs"),
    (
        "train_gpt",
        (*GPT, "model.num_layers=1000", "model.embed_dim=512"),
        "model.num_layers=1000 x model.embed_dim=512",
    ),
    ("train_gpt", (*GPT, "trainer.mini_batch_size=1000000"), "trainer.mini_batch_size=1000000 x model.context_len=8"),
    ("train_gpt", (*GPT, *EVALUATED), "evals.num_eval_env"),
    (
        "train_ilql",
        (*GPT, "encoder.embed_dim=4096"),
        "encoder.num_layers=1 x encoder.embed_dim=4096 x encoder.dim_feed",
    ),
    ("train_ilql", (*GPT, "decoder.num_layers=1000", "decoder.ff_dim=1024"), "decoder.num_layers=1000 x deco"),
    ("evaluate", ("name=x", "run=tiny", "histories=tiny", "evaluation.num_streams=100000"), "evaluation.num_streams=1"),
    (
        "evaluate",
        ("name=x", "run=tiny", "histories=tiny", "evaluation.num_train_streams=100000"),
        "evaluation.num_train_",
    ),
]


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda _: FREE)
    monkeypatch.setattr("icrl.training.needs.free_disk", lambda _: FREE)


@pytest.mark.parametrize(("program", "options", "start"), TOO_LARGE, ids=lambda part: str(part)[:60])
def test_programs_refuse_what_does_not_fit(
    program: str, options: tuple[str, ...], start: str, root: Path, tmp_path: Path
) -> None:
    place = tmp_path / "new" if program == "train_agents" else root
    before = files_of(place)
    found = run(program, place, *options).refusal
    assert found.startswith(start), found
    assert found.endswith("0.1 GB are free: lower one of these options")
    assert files_of(place) == before


def test_the_search_and_players_refuse_it_too(tmp_path: Path) -> None:
    tiny = ["experiment=tiny", f"root={tmp_path}", "search.num_learners=100000"]
    with pytest.raises(ConfigError, match=r"^search\.num_learners=100000 x source\.hidden_size=\d+ needs about"):
        search_params.main(load_config(tiny))
    players = ["players=tiny", f"root={tmp_path}", "replay.size=10000000"]
    with pytest.raises(ConfigError, match=r"^replay\.size=10000000 x game\.max_num_points=\d+ needs about"):
        train_players.main(load_players_config(players))
    assert all(path.name == ".lock" for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("number", [10**9 + 1, 2**63, 10**30])
@pytest.mark.parametrize(
    "option", ["checkpoints.keep_last", "trainer.num_iterations", "source.target_update_period", "summaries.max_queue"]
)
def test_no_int_is_beyond_64_bits(option: str, number: int) -> None:
    with pytest.raises(ConfigError, match=rf"^{option}={number}: must be int >= 1 and <= 1000000000$"):
        load_config(["source=dqn", f"{option}={number}"])


def test_digits_without_end_are_one_line() -> None:
    with pytest.raises(ConfigError) as refused:
        load_config([f"seed={'9' * (sys.get_int_max_str_digits() + 1)}"])
    assert len(str(refused.value).splitlines()) == 1
