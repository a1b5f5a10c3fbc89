"""Predictions and planning against loops over windows, steps and continuations."""

import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
import torch
from continued import check_continues
from harness import done, refusal
from installed import INDUCTION
from policies import CONTEXT_LEN, Recorded, gpt, play, slow_logits
from refusals import check_refusal, refusals
from small_models import CONFIG, LENGTH, SPEC, batch_of
from torch import Tensor, nn

import icrl
from icrl import extensions
from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import Batch, ConfigError
from icrl.envs import make_env
from icrl.envs.policies import Chance
from icrl.evaluation.in_context import play_episodes, play_steps
from icrl.extensions.planning.planner import Planned, planned_gpt
from icrl.extensions.planning.world_model import PlanningConfig, PlanningHead, PlanningObjective
from icrl.nn.cache import Cache, TokenCache
from icrl.nn.gpt import GPT, Context, GPTConfig, Window, context_of
from icrl.nn.gpt_policy import GPTPolicy
from icrl.nn.heads import Categorical, make_head
from icrl.runs.files import read_json
from icrl.spaces import EnvSpec, discrete_spec
from icrl.training.trials import check_trials

ROOM = make_env(replace(CONFIG.env, size=3, max_episode_steps=6, random_start=True))
HEAD = PlanningHead(GPTConfig(), SPEC)
FORMS: list[dict] = [{}, {"tokens": "interleaved"}, {"induction": INDUCTION[-1], "position": "env_time"}]
FORMS += [{"trunk": "gru", "position": "env_time"}] if "recurrent" in extensions.NAMES else []


def test_the_head_is_the_categorical_of_its_first_parameters() -> None:
    assert HEAD.sizes == (4, 4 * 3, 4 * 10)
    parameters = torch.randn(6, 5, HEAD.num_parameters, generator=torch.Generator().manual_seed(0))
    plain, logits, action = Categorical(4), parameters[..., :4], torch.arange(30).view(6, 5) % 4
    assert torch.equal(HEAD.log_prob(parameters, action), plain.log_prob(logits, action))
    assert torch.equal(HEAD.entropy(parameters), plain.entropy(logits))
    found = HEAD.split(parameters)
    assert torch.equal(found.reward[0, 0, 1], parameters[0, 0, 7:10])
    assert torch.equal(found.next_obs[0, 0, 3], parameters[0, 0, 46:56])


def test_the_loss_equals_its_equation() -> None:
    model = gpt(SPEC, head="planning")
    objective = PlanningObjective(PlanningConfig(), SPEC, model.head)
    batch = batch_of(3, LENGTH, terminated=[0, 1, 0] * LENGTH, truncated=[0, 0, 1] * LENGTH)
    batch = batch._replace(weight=torch.rand(3, LENGTH, generator=torch.Generator().manual_seed(2)))
    parameters = model(context_of(Window.of(batch))).detach()
    expected = dict.fromkeys(("imitation", "reward_nll", "next_obs_nll"), 0.0)
    for b in range(3):
        for t in range(LENGTH):
            action, steps = int(batch.action[b, t]), parameters[b, t]
            after = 9 if batch.terminated[b, t] else int(batch.next_obs[b, t])
            reward = SPEC.reward_values.index(float(batch.reward[b, t]))
            own = {"imitation": (steps[:4], action)}
            own["reward_nll"] = steps[4:16].view(4, 3)[action], reward
            own["next_obs_nll"] = steps[16:].view(4, 10)[action], after
            for name, (logits, target) in own.items():
                weight = float(batch.weight[b, t]) if name == "imitation" else 1.0
                expected[name] -= weight * float(logits.log_softmax(-1)[target]) / (3 * LENGTH)
    terms, metrics = objective(model, batch)
    assert objective.weights == {"imitation": 1.0, "reward_nll": 1.0, "next_obs_nll": 1.0}
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-4)
    assert torch.equal(objective.logits(model, batch), parameters[..., :4])
    assert set(metrics) == {"nll", "accuracy", "reward_accuracy", "next_obs_accuracy"}


# ---- planning


class Street(nn.Module):
    """A model that is sure of everything: houses 0 to 4, actions back and forth, and the task ends with a reward of 1
    in house 4. It goes back rather than forth."""

    spec = discrete_spec(5, 2, (0.0, 1.0), 0, 10)
    config = GPTConfig(obs_encoding="cell", head="planning")

    def __init__(self) -> None:
        super().__init__()
        self.head = make_head(self.config, self.spec)

    def forward(self, context: Context, cache: Sequence[TokenCache] = ()) -> Tensor:
        house = context.obs
        after = torch.stack([(house - 1).clamp(min=0), (house + 1).clamp(max=4)], dim=-1)  # [N, 1, A]
        reward = (after == 4).long()
        ends = nn.functional.one_hot(after + reward, 6), nn.functional.one_hot(reward, 2)
        policy = torch.tensor([1.0, 0.0]).expand(*house.shape, 2)
        return 50 * torch.cat([policy / 50, ends[1].flatten(2), ends[0].flatten(2)], dim=-1)

    def new_cache(self, num_streams: int) -> Cache:
        return Cache([TokenCache()])


@pytest.mark.parametrize(
    ("house", "timestep", "clock", "horizon", "beams", "expected"),
    [
        (2, 0, 0, 1, 1, (0.0, 0.0)),
        (2, 0, 0, 2, 1, (0.0, 0.5)),  # a reward in the second step
        (3, 0, 0, 9, 1, (0.0, 1.0)),  # nothing after the end of the task; after a step back the policy goes on back
        (3, 0, 0, 3, 2, (0.25, 1.0)),  # but not all continuations do
        (1, 0, 0, 3, 1, (0.0, 0.0)),
        (1, 0, 0, 3, 4, (0.0, 0.25)),
        (2, 8, 0, 3, 4, (0.0, 0.5)),
        (2, 9, 0, 3, 4, (0.0, 0.0)),  # the episode ends by its length
        (2, 8, 9, 3, 4, (0.0, 0.0)),  # or by a clock that is shorter than that of the training
    ],
)
def test_values_of_a_street_by_hand(
    house: int, timestep: int, clock: int, horizon: int, beams: int, expected: tuple[float, float]
) -> None:
    planned = Planned(Street(), PlanningConfig(horizon=horizon, beams=beams, discount=0.5), clock)
    window = Window.empty(Street.spec, 1, 1, torch.device("cpu"))
    context = context_of(window._replace(obs=torch.tensor([[house]]), timestep=torch.tensor([[timestep]])))
    found = planned.model.head.split(planned.model(context)[:, -1])
    assert planned.values(found, context.obs[:, -1], context.timestep[:, -1], planned.new_cache(1)).tolist() == [
        [*expected]
    ]
    best = [value == max(expected) for value in expected]
    logits = planned(context)[0, 0].tolist()
    assert logits == [plain if good else -math.inf for plain, good in zip((1.0, 0.0), best, strict=True)]


class Winding(Street):
    """It goes forth from house 1, rather back from house 2, and either way from house 0."""

    def forward(self, context: Context, cache: Sequence[TokenCache] = ()) -> Tensor:
        found = super().forward(context)
        found[..., :2] = torch.tensor([[0.0, 0.0], [0.0, 3.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])[context.obs]
        return found


def test_of_equal_continuations_those_with_the_most_probable_actions_are_kept() -> None:
    """Of all actions: the way to the reward is improbable in its last step alone when two of four are kept."""
    planned = Planned(Winding(), PlanningConfig(horizon=4, beams=2, discount=0.5))
    context = context_of(Window.empty(Street.spec, 1, 1, torch.device("cpu")))
    assert planned(context)[0, 0].tolist() == [-math.inf, 0.0]


def test_a_model_plans_by_the_clock_of_the_world_that_it_plays_in() -> None:
    env, model = replace(CONFIG.env, max_episode_steps=2), replace(CONFIG.model, head="planning")
    config = replace(CONFIG, objective=PlanningConfig(), env=env, model=model)
    weights = gpt(SPEC, head="planning").state_dict()
    assert planned_gpt(config, SPEC, weights, torch.device("cpu")).clock == 2


class Slow(nn.Module):
    """The same policy, stream by stream, from lists of continuations that are read without a cache."""

    def __init__(self, planned: Planned) -> None:
        super().__init__()
        self.model, self.options, self.spec = planned.model, planned.options, planned.spec

    def predictions(self, steps: list[tuple[int, int, float, int]]) -> list[Tensor]:
        """Log-probabilities of actions, and the likeliest reward and observation after each."""
        columns = (torch.tensor([column]) for column in zip(*steps, strict=True))
        found = self.model.head.split(self.model(context_of(Window(*columns)))[0, -1])
        return [found.action, found.action.log_softmax(-1), found.reward.argmax(-1), found.next_obs.argmax(-1)]

    def value(self, steps: list[tuple[int, int, float, int]], first: int) -> float:
        """Q of the action `first` after these steps, of which the last has no action yet."""
        beams = [(0.0, 0.0, steps, False)]
        for depth in range(self.options.horizon):
            further = []
            for total, log_prob, path, ended in beams:
                _, log, rewards, after = self.predictions(path)
                for action in range(self.spec.num_actions) if depth else [first]:
                    obs, _, _, timestep = path[-1]
                    reward, new = self.spec.reward_values[int(rewards[action])], int(after[action])
                    known = [*path[:-1], (obs, action, reward, timestep)]
                    over = ended or new == self.spec.num_obs or timestep + 1 == self.spec.max_episode_steps
                    clock = min(timestep + 1, self.spec.max_episode_steps - 1)
                    known.append((min(new, self.spec.num_obs - 1), 0, 0.0, clock))
                    gain = 0.0 if ended else self.options.discount**depth * reward
                    further.append((total + gain, log_prob + float(log[action]), known, over))
            beams = sorted(further, key=lambda one: one[:2], reverse=True)[: self.options.beams]
        return beams[0][0]

    def forward(self, context: Context) -> Tensor:
        """Logits `[B, 1, A]` of the last step."""
        logits = []
        for stream in range(len(context.obs)):
            one = [column[stream].tolist() for column in context]
            actions, rewards = [*one[1][1:], 0], [*one[2][1:], 0.0]
            steps = list(zip(one[4], actions, rewards, one[5], strict=True))
            values = [self.value(steps, first) for first in range(self.spec.num_actions)]
            worse = torch.tensor([value < max(values) - 1e-6 for value in values])
            logits.append(self.predictions(steps)[0].masked_fill(worse, -torch.inf))
        return torch.stack(logits)[:, None]


@pytest.mark.parametrize(("form", "horizon", "beams"), [({}, 1, 1), ({}, 3, 1), *((form, 3, 3) for form in FORMS)])
@torch.no_grad()
def test_logits_equal_the_slow_reference_past_full_contexts(form: dict, horizon: int, beams: int) -> None:
    model = gpt(ROOM.spec, head="planning", context_len=CONTEXT_LEN + horizon - 1, **form)
    policy = Recorded(Planned(model, PlanningConfig(horizon=horizon, beams=beams, discount=0.9)))
    played = play(policy, ROOM, CONTEXT_LEN + 3, 2)
    slow = slow_logits(Slow(policy.model), played, 3)
    for got, expected in zip(policy.noted, slow, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    planned = torch.stack(policy.noted).isinf().any(-1)
    assert planned.any()  # and sometimes planning chooses
    window = Window(*(getattr(played, name)[:4].transpose(0, 1) for name in Window._fields))
    uncached = policy.model(context_of(window))
    torch.testing.assert_close(uncached, torch.stack(policy.noted[:4], dim=1), atol=1e-4, rtol=1e-4)


def test_a_model_of_random_play_learns_to_plan() -> None:
    """It learns from random play in a room of nine cells, where a reward is paid at every step on the goal. Alone it
    acts at random; with planning it goes back to where it found a reward in its context."""
    torch.manual_seed(0)
    env = make_env(replace(CONFIG.env, size=3, max_episode_steps=6, terminate_on_goal=False))
    sizes = {"context_len": 32, "embed_dim": 32, "num_layers": 2, "ff_dim": 64, "position": "env_time"}
    model = GPT(replace(CONFIG.model, head="planning", **sizes), env.spec)
    objective = PlanningObjective(PlanningConfig(), env.spec, model.head)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for update in range(150):
        played = play_steps(Chance(env.spec), env, env.all_tasks(), 4, 30, update)
        columns = {name: getattr(played, name).transpose(0, 1) for name in played._fields}
        others = {"optimal_action": columns["action"], "training_reward": columns["reward"]}
        batch = Batch(
            **{name: (columns | others).get(name, torch.ones_like(played.reward.T)) for name in Batch._fields}
        )
        terms, metrics = objective(model, batch)
        optimizer.zero_grad()
        torch.stack([*terms.values()]).sum().backward()
        optimizer.step()
    assert metrics["next_obs_accuracy"] > 0.99
    returns = []
    for one in (model, Planned(model, PlanningConfig(horizon=3))):
        played, _ = play_episodes(GPTPolicy(one, 1.0, 1.0, 0.5), env, env.all_tasks(), 4, 8, 0)
        returns.append(played.returns.mean((0, 1)))
    assert returns[0].max() < 1.5 and returns[1][0] < 2.5 and returns[1][4:].mean() > 3.5, returns


def test_worlds_without_lists_are_refused() -> None:
    spec = EnvSpec(SPEC.observation_space, SPEC.action_space, (), 0, 5)
    with pytest.raises(ConfigError, match=r"model\.head=planning needs .* a list of rewards"):
        make_head(GPTConfig(head="planning"), spec)


def test_trials_in_rooms_of_other_sizes_are_refused_before_any_work() -> None:
    """Their observations are others than those that the head predicts."""
    with pytest.raises(
        ConfigError, match=r"finetune\.num_rooms=52: model\.head=planning .* give finetune\.num_rooms=0"
    ):
        check_trials(load_config(["objective=planning"]))
    check_trials(load_config(["objective=planning", "finetune.num_rooms=0"]))


@pytest.mark.parametrize(("_", "overrides", "named"), refusals(Path(__file__).with_name("refusals.txt")))
def test_a_refusal_names_field_value_and_what_is_allowed(_: str, overrides: list[str], named: list[str]) -> None:
    check_refusal(load_config, overrides, named)


# ---- programs


def test_a_continued_run_ends_with_the_same_bits_and_its_model_plans(root: Path) -> None:
    options = ("name=plans", "histories=tiny", "run=plans", "objective=planning", "objective.horizon=3")
    options += ("model.position=learned",)  # which has no code for a step behind the context
    planned = (*options, "policy.model=planned")
    check_continues("train_gpt", root, "logs/plans/gpt", *options)
    done("evaluate", root, *planned)
    assert read_json(root / "logs/plans/evaluation-policy=planned/results.json")["curves"]
    for other in ("objective.beams=2", "objective.horizon=2", "objective.discount=0.5"):
        assert "another name=" in refusal("evaluate", root, *planned, other)
    if "calibration" in extensions.NAMES:
        assert "calibration error" in done("calibrate", root, *planned)
    policy, alone = (icrl.load(root / "logs/plans", model=model) for model in ("planned", None))
    assert isinstance(policy.policy.model, Planned) and isinstance(alone.policy.model, GPT)
    assert policy.policy.model.options.horizon == 3 and policy.act([0]).shape == (1,)
    with pytest.raises(ConfigError, match=r"policy\.model=planned: objective\.name=ad .* must be planning"):
        icrl.load(root / "logs/tiny", model="planned")
    if "exported" in extensions.NAMES:
        with pytest.raises(ConfigError, match="a Planned is not saved"):
            import_module("icrl.extensions.exported.folder").save(policy, root / "saved")
