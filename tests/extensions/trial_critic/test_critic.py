"""Values and generalised advantages of trials: numbers by hand, scalar references, a refusal, runs of the program."""

import itertools
from pathlib import Path

import pytest
import torch
from continued import check_continues
from harness import TINY, done
from installed import needs
from models import outspoken
from safetensors.torch import load_file
from toy import weights_of
from trial_models import MODEL, OPTIONS, learned
from worlds import room

import icrl
from icrl import extensions
from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.extensions.trial_critic.critic import VALUE_WEIGHT, generalised, with_values
from icrl.nn.gpt import GPT, Trunk, Window, context_of
from icrl.programs import finetune
from icrl.runs.distributed import Ranks, process_group
from icrl.training import trials
from icrl.training.policy_gradient import parameters_of
from icrl.training.trials import Trials

ENV = room(size=3, max_episode_steps=5)
TRIALS = (
    *("finetune.trial_steps=8", "finetune.num_iterations=2", "finetune.num_mini_batches=3"),
    *("checkpoints.keep_last=3", "trainer.gradient_accumulation_steps=1"),
)


def test_advantages_by_hand():
    """Three steps, one half as discount and as lambda: rewards are -0.5, 2 and 2, TD errors -0.25, 0 and 3."""
    relative, value = torch.tensor([[1.0], [3.0], [2.0]]), torch.tensor([[0.5], [1.5], [-1.0]])
    errors = [-0.5 + 0.75 - 0.5, 2 - 0.5 - 1.5, 2 + 1.0]
    expected = [errors[0] + (errors[1] + errors[2] / 4) / 4, errors[1] + errors[2] / 4, errors[2]]
    found = generalised(relative, value, torch.ones(3, 1), 0.5, 0.5)
    torch.testing.assert_close(found[:, 0], torch.tensor(expected))


@pytest.mark.parametrize("gae_lambda", [0.6, 1.0])
def test_steps_that_a_window_has_beside_those_of_its_trial_do_not_count(gae_lambda: float) -> None:
    """An earlier window has the first two, and the last two repeat the end of the trial."""
    relative, value = torch.randn(2, 8, 5, generator=torch.Generator().manual_seed(0))
    relative[6:], value[6:] = relative[5], value[5]
    weight = torch.tensor([0.0, 0, 1, 1, 1, 1, 0, 0])[:, None].expand(8, 5)
    found = generalised(relative, value, weight, 0.9, gae_lambda)[2:6]
    torch.testing.assert_close(found, generalised(relative[2:6], value[2:6], weight[2:6], 0.9, gae_lambda))
    assert (gae_lambda == 1) == torch.allclose(found, (relative - value)[2:6])


@pytest.mark.parametrize("context_len", [20, 8])
def test_the_loss_and_its_gradient_equal_scalar_ones(context_len: int) -> None:
    """The value in its error trains the trunk, the value in the advantage does not."""
    options = replace(OPTIONS, gae_lambda=0.8, num_mini_batches=1, entropy_coefficient=0.0)
    model = GPT(replace(MODEL, context_len=context_len), ENV.spec)
    made = with_values(model, Ranks())
    outspoken(model)
    batch = Trials(options, ENV, ENV.all_tasks(), model, seed=5).batch_at(0)
    moved = 0.2 * torch.randn(batch.log_prob.shape, generator=torch.Generator().manual_seed(0))
    batch = batch._replace(log_prob=batch.log_prob + moved)  # ratios of 1 would hide a gradient through the advantages
    objective = made(options, ENV.spec, model.head, dict)
    terms, _ = objective(model, batch)
    value = model.value_head(Trunk.forward(model, context_of(Window.of(batch))))[..., 0]
    rates = (options.discount, options.gae_lambda)
    found = generalised(batch.advantage.T, value.detach().T, batch.weight.T, *rates).T
    counted = batch.weight > 0
    advantage = (found - found[counted].mean()) / found[counted].std(correction=0)
    log_prob = model.head.log_prob(parameters_of(ENV.spec, model, batch), batch.action)
    policy, error, (rows, steps) = [], [], batch.weight.shape
    for b, t in itertools.product(range(rows), range(steps)):
        if counted[b, t]:
            ratio, a = (log_prob[b, t] - batch.log_prob[b, t]).exp(), advantage[b, t].item()
            policy.append(-torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a))
            error.append((batch.advantage[b, t] - value[b, t]) ** 2)
    assert objective.weights["value"] == VALUE_WEIGHT and len(policy) == 12 * 20
    for name, parts in {"policy": policy, "value": error}.items():
        expected = sum(parts) / len(parts)
        torch.testing.assert_close(terms[name], expected, rtol=1e-4, atol=1e-5)
        ours, theirs = (
            torch.autograd.grad(loss, [*model.transformer.parameters()], retain_graph=True)
            for loss in (terms[name], expected)
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_a_value_head_leaves_the_policy_as_it_is():
    """The cached actor has the probabilities of the update, and those of the model without a value head."""
    model, plain = (GPT(MODEL, ENV.spec) for _ in range(2))
    plain.load_state_dict(outspoken(model).state_dict())
    made = with_values(model, Ranks())
    ours, theirs = (Trials(OPTIONS, ENV, ENV.all_tasks(), one, seed=5).batch_at(0) for one in (model, plain))
    assert all(map(torch.equal, ours, theirs))
    assert not any(one.any() for one in model.value_head.parameters())  # values begin as 0
    objective = made(replace(OPTIONS, gae_lambda=0.9), ENV.spec, model.head, dict)
    found = model.head.log_prob(objective.logits(model, ours), ours.action)
    assert torch.allclose(found, ours.log_prob, atol=1e-5)
    unpaid = ours._replace(advantage=torch.zeros_like(ours.advantage))  # no stream of the batch has found anything yet
    assert objective(model, unpaid)[0]["policy"] == 0


def test_a_model_learns_in_context_from_random_weights():
    """As without values, in fewer updates: to find goals, and to find them again in later episodes of a trial."""
    options = replace(OPTIONS, num_tasks=0, num_streams=12, num_mini_batches=2, gae_lambda=0.9)
    _, history = learned(ENV, options, 25, 0.005)
    assert history[-1]["return"] > 3 * history[0]["return"]
    assert history[-1]["last_success"] > history[-1]["first_success"] + 0.1


def test_one_stream_of_each_task_is_compared_with_those_of_all_tasks() -> None:
    options = replace(OPTIONS, num_tasks=0, num_streams=1, num_mini_batches=1, gae_lambda=0.9, bonus=0.0)
    made = Trials(options, ENV, ENV.all_tasks(), GPT(MODEL, ENV.spec), seed=5)
    batch, to_go = made.batch_at(0), torch.zeros(len(ENV.all_tasks()), options.trial_steps)
    reward = batch.reward
    for t in reversed(range(options.trial_steps)):
        later = to_go[:, t + 1] if t + 1 < options.trial_steps else 0.0
        to_go[:, t] = reward[:, t] + options.discount * later
    difference = to_go - to_go.mean(0)
    assert difference.any()
    torch.testing.assert_close(batch.advantage, difference / difference.square().mean().sqrt())
    with pytest.raises(ConfigError, match="^finetune.num_streams=1: must be at least 2, unless finetune.gae_lambda"):
        load_config(["finetune.num_streams=1"])


def test_a_model_learns_from_one_stream_of_each_task() -> None:
    """As from several, by values that learn what a task pays."""
    options = replace(OPTIONS, num_tasks=0, num_streams=1, num_mini_batches=2, gae_lambda=0.9)
    _, history = learned(ENV, options, 100, 0.005)
    assert history[-1]["return"] > 3 * history[0]["return"]


def test_a_lambda_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^finetune.gae_lambda=1.5: must be null or float >= 0 and <= 1$"):
        load_config(["finetune.gae_lambda=1.5"])


def test_parts_of_a_batch_are_refused() -> None:
    """Advantages are normalized over the whole batch, which a part does not have."""
    parts = "trainer.gradient_accumulation_steps=2"
    with pytest.raises(ConfigError, match=f"^finetune.gae_lambda=0.9 needs .* at once, not {parts}: "):
        load_config(["finetune.gae_lambda=0.9", parts])
    load_config([parts])


def test_without_the_extension_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "CRITICS", [])
    with pytest.raises(ConfigError, match="^finetune.gae_lambda=0.9 needs an extension .*; give null$"):
        trials.check_trials(load_config(["finetune.gae_lambda=0.9"]))


@needs("scaling")
def test_two_processes_learn_what_one_learns(root: Path) -> None:
    """Up to rounding: advantages are normalized over the streams of both."""
    found = []
    for name, size in (("alone", 1), ("shared", 2)):
        options = ("finetune.start=none", "finetune.gae_lambda=0.9", "device.amp_dtype=none", f"name={name}")
        given = (*TINY, *TRIALS, *options, f"root={root}", "histories=tiny", "run=tiny")
        process_group().in_ranks(finetune.main, load_config(given), size)
        found.append(weights_of(root / "logs" / name / "finetuned"))
    torch.testing.assert_close(*found, rtol=0, atol=1e-5)


def test_a_continued_run_ends_with_the_same_bits_and_its_model_acts(root: Path) -> None:
    """The value head is in the checkpoints, and not in the model that acts."""
    options = (*TRIALS, "finetune.start=none", "finetune.gae_lambda=0.9", "policy.model=finetuned")
    check_continues("finetune", root, "logs/tiny/finetuned", *options)
    done("evaluate", root, *options)
    if "exported" in extensions.NAMES:
        done("export_model", root, *options)
        policy = icrl.load(next((root / "logs/tiny").glob("export*")))
        assert "value_head.weight" not in load_file(next((root / "logs/tiny").glob("export*/model.safetensors")))
        assert policy.policy.model.state_dict().keys() == GPT(policy.config.model, policy.spec).state_dict().keys()
