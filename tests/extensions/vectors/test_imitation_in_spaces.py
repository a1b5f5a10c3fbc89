"""Imitation of actions that are no single integers: losses and metrics by hand, moments by NumPy, models that learn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from space_worlds import ARM, HORIZON, WORLDS, elements, window_of
from torch import Tensor

from icrl import objectives
from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import Batch, ConfigError, Rollout
from icrl.data.history_store import HistoryWriter, open_histories
from icrl.data.windows import DataConfig, Mixture, Windows, mean_and_std, moments_of
from icrl.nn.encoders import Moments, set_moments
from icrl.nn.gpt import GPT, Window, context_of
from icrl.objectives.imitation import AlgorithmDistillation, DecisionPretraining, ObjectiveConfig
from icrl.spaces import EnvSpec, discrete_spec
from icrl.training.program import check_stage_two

CONFIG = load_config(["model.obs_encoding=coordinates"])
OBJECTIVE = ObjectiveConfig(weighting="none")
MODEL = replace(CONFIG.model, context_len=8, embed_dim=32, num_layers=1, num_heads=2, ff_dim=64)
HOST = discrete_spec(9, 4, (0.0, 1.0), 3, 5)
KINDS = {"action": AlgorithmDistillation, "optimal_action": DecisionPretraining}


def batch_of(window: Window, target: Tensor | None = None, weight: Tensor | None = None) -> Batch:
    """A batch with the windows; `target` is the optimal action."""
    ones = torch.ones(window.reward.shape)
    best = window.action if target is None else target
    rest = window.obs, window.timestep, ones.long(), ones.long(), best, ones if weight is None else weight, ones
    return Batch(window.obs, window.action, window.reward, *rest)


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("world", ["vector to arm", "integers to integers"])
def test_losses_are_weighted_log_probabilities_of_the_head(world: str, target: str) -> None:
    spec = WORLDS[world]
    torch.manual_seed(0)
    model, window = GPT(MODEL, spec).eval(), window_of(spec, 3, 8)
    best, weight = elements(spec.action_space, 3, 8, seed=9), torch.rand(3, 8)
    batch = batch_of(window, best, weight)
    losses, metrics = KINDS[target](OBJECTIVE, spec, model.head)(model, batch)
    with torch.no_grad():
        parameters, wanted = model(context_of(window)), getattr(batch, target)
        each, mode = model.head.log_prob(parameters, wanted), model.head.mode(parameters)
    total, nll, right, away = 0.0, 0.0, 0, 0.0
    for row in range(3):
        for t in range(8):
            total -= float(weight[row, t]) * float(each[row, t]) / 24
            nll -= float(each[row, t]) / 24
            right += mode[row, t].tolist() == wanted[row, t].tolist()
            away += float((mode[row, t] - wanted[row, t]).abs().double().mean()) / 24
    assert losses.keys() == {"imitation"} and losses["imitation"].item() == pytest.approx(total, rel=1e-4)
    second = {"action_error": away} if world == "vector to arm" else {"accuracy": right / 24}
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx({"nll": nll} | second, rel=1e-4)


def test_labels_need_discrete_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(objectives._LABELS, "mine", None)
    config = load_config(["model.obs_encoding=coordinates", "objective.name=dpt", "objective.labels=mine"])
    check_stage_two(config, HOST)
    with pytest.raises(ConfigError, match=r"objective\.labels=mine needs Discrete actions"):
        check_stage_two(config, WORLDS["vector to arm"])


def mixture_of(folder: Path, spec: EnvSpec, *windows: Window) -> Mixture:
    """A mixture of one store for each of the `windows` `[rows, T, ...]`, recorded under `folder`."""
    parts: list[Windows] = []
    for window in windows:
        rows, steps = window.reward.shape
        path, tasks = folder / f"store{len(parts)}", {"all": [[0]], "seed": 0, "train": [0], "held_out": []}
        writer = HistoryWriter(path, spec, steps, tasks, {"num_learners": rows, "num_envs": 1}, CONFIG.model_dump())
        obs, action, reward, timestep = (column.transpose(0, 1) for column in window)
        ends = timestep == HORIZON - 1
        writer.add(Rollout(obs, action, reward, obs, timestep, ends, ~ends & False, action))
        writer.commit()
        writer.finish()
        data = DataConfig(keep_every=[1], kept_steps=0, min_final_success=0)
        parts.append(Windows(open_histories(path), data, OBJECTIVE, [0], 5, torch.device("cpu")))
    return Mixture(parts, [])


@pytest.mark.parametrize("world", ["vector to arm", "image to integers"])
def test_moments_are_those_of_numpy_over_all_stores(
    world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And windows of the stores have the recorded numbers, in the dtypes of the spaces."""
    monkeypatch.setattr("icrl.data.windows._CHUNK", 10)
    spec = WORLDS[world]
    one, two = window_of(spec, 3, 8), window_of(spec, 5, 7, seed=1)
    mixture = mixture_of(tmp_path, spec, one, two)
    channels = spec.obs_shape[-1]
    obs = np.concatenate([window.obs.numpy().reshape(-1, channels) for window in (one, two)]).astype(np.float64)
    reward = np.concatenate([window.reward.numpy().ravel() for window in (one, two)])
    for got, expected in zip(moments_of(mixture), (obs.mean(0), obs.std(0), [reward.std()]), strict=True):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)
    batch = mixture.parts[1].at(torch.tensor([0, 4]))  # the first windows of the first two rows, each of 3 windows
    for row, first in ((0, 0), (1, 1)):
        for name, column in Window.of(batch)._asdict().items():
            recorded_there = getattr(two, name)[row, first : first + 5]
            assert torch.equal(column[row], recorded_there) and column.dtype == recorded_there.dtype


def task(obs: Tensor) -> Tensor:
    """Actions of the arm: functions of a vector with components of mean 5, 500 and -1 and deviation 1, 100 and 0.01."""
    x = (obs - torch.tensor([5.0, 500.0, -1.0])) / torch.tensor([1.0, 100.0, 0.01])
    squashed = torch.stack([(x[..., 0] - x[..., 1]).tanh(), (x[..., 2] * 2).tanh()], -1)
    low, high = torch.tensor(ARM.low), torch.tensor(ARM.high)
    return (low + high) / 2 + (high - low) / 2 * squashed


@pytest.mark.parametrize("head", ["gaussian", "binned"])
def test_models_learn_actions_of_vectors(head: str) -> None:
    """The error of the mode, as a share of the range of the actions, from that of a constant to below 0.05."""
    spec, generator = WORLDS["vector to arm"], torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    played = window_of(spec, 16, 8)
    model = GPT(replace(MODEL, head=head, num_bins=32), spec)
    objective, span = AlgorithmDistillation(OBJECTIVE, spec, model.head), torch.tensor(ARM.high - ARM.low)

    def batch() -> Batch:
        obs = torch.randn(16, 8, 3, generator=generator) * torch.tensor([1.0, 100.0, 0.01])
        obs = obs + torch.tensor([5.0, 500.0, -1.0])
        return batch_of(played._replace(obs=obs, action=task(obs)))

    def error(windows: Batch) -> float:
        with torch.no_grad():
            return ((model.head.mode(objective.logits(model, windows)) - windows.action).abs() / span).mean().item()

    fixed = batch()
    set_moments(model, Moments(*mean_and_std(lambda: [fixed.obs.flatten(0, 1)]), torch.ones(1)))
    before = error(fixed)
    descent = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(120):
        descent.zero_grad()
        objective(model, batch())[0]["imitation"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        descent.step()
    assert before > 0.2 and error(fixed) < 0.05
