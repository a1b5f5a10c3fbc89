"""All stages on a GPU that is pretended (`helpers/pretended_gpu.py`): no tensor is left on the wrong device."""

from pathlib import Path

import pytest
import torch
from harness import done
from installed import needs
from pretended_gpu import pretended

STAGES = ("train_agents", "train_gpt", "finetune", "evaluate")
SMALL = (
    *("device.type=cuda", "num_threads=1", "policy.model=finetuned", "tasks.num_train=4", "data.kept_steps=0"),
    *("source.num_env_steps=2000", "source.history_steps=2000", "source.num_learners=1", "source.videos_per_task=1"),
    *("data.num_development_tasks=1", "data.min_final_success=0", "data.keep_every=[1]", "objective.weighting=none"),
    *("model.context_len=12", "model.embed_dim=8", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=16"),
    *("trainer.num_iterations=2", "trainer.mini_batch_size=4", "checkpoints.num_checkpoints=1"),
    *("evals.num_evals=1", "evals.num_eval_episodes=2", "evals.num_eval_environments=2", "evals.async_eval=false"),
    *("finetune.num_iterations=2", "finetune.num_streams=2", "finetune.trial_steps=16", "finetune.num_tasks=2"),
    *("finetune.num_mini_batches=2", "evaluation.num_episodes=3", "evaluation.num_streams=2"),
    *("evaluation.num_probe_streams=1", "evaluation.num_bootstrap=100", "evaluation.num_train_tasks=2"),
    "summaries.num_summaries=1",
)
QUICK = (
    *("env=tiny_room", "env.size=3", "env.max_episode_steps=5", "model.max_size=6", "model.obs_encoding=smooth"),
    *("source.num_env_steps=300", "source.history_steps=300", "finetune.num_rooms=2", "finetune.room_sizes=[2,4]"),
    *("source.videos_per_task=0", "evaluation.videos=false", "evaluation.temperatures=[0.0]"),
)
LONG = "source.num_env_steps=8000 source.history_steps=8000 finetune.bonus=0"
SHORT = "source.num_env_steps=1000 source.history_steps=1000 source.initial_collect_steps=200 finetune.bonus=0"
CASES = {  # by the extension that has it
    "": ["env=dark_room_permuted", "objective=dpt", "model.tokens=cross", "finetune.num_unsolvable=1"],
    "worlds": ["env=bandit", "env=bandit_linear", "env=garnet", "env=dark_key_to_door_hidden", "env=anymdp"],
    "literature": ["env=bandit_5_arms", "env=bandit_fixed_arm", "env=dirichlet_mdp", "env=treasure_room"],
    "vectors": [f"env={name} {LONG}" for name in ("cart_pole", "pendulum", "point_robot")],
    "from_gymnasium": ["env=frozen_lake", f"env=gymnasium_cart_pole {LONG}"],
    "async_unrolls": ["source=a3c"],
    "value_sources": ["source=dqn", "source=q_learning"],
    "searchers": ["source=searcher", "source=covering_plan"],
    "experts": ["source=optimal", "source=random", "source=noise_distillation"],
    "ppo": ["source=ppo"],
    "sac": [f"env=point_robot source=sac {SHORT}"],
    "recurrent": ["model.trunk=delta", "model.trunk=gru"],
    "induction": ["model.induction=true"],
}
MANY = [pytest.param(given, marks=needs(name) if name else ()) for name, cases in CASES.items() for given in cases]


def test_two_devices_do_not_mix() -> None:
    with pretended():
        there, here = torch.ones(2, device="cuda"), torch.ones(2)
        assert (there + 1).device.type == "cuda" and (there[:1] * there.sum()).is_cuda and there.cpu().is_cpu
        with pytest.raises(RuntimeError, match="same device"):
            there + here
        with pytest.raises(RuntimeError, match="on the CPU"):
            here[there.long()]
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
    assert not (there + here).is_cuda


def test_all_stages_leave_every_tensor_where_it_belongs(tmp_path: Path) -> None:
    with pretended():
        for stage in STAGES:
            done(stage, tmp_path, *QUICK, preset=SMALL)


@pytest.mark.long
@pytest.mark.parametrize("options", MANY)
def test_so_do_other_worlds_sources_and_models(options: str, tmp_path: Path) -> None:
    with pretended():
        for stage in STAGES:
            done(stage, tmp_path, *options.split(), preset=SMALL)
