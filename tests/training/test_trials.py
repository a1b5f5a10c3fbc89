"""Trials that policy gradients learn from: who plays them, in which order they are learned from, what is learned."""

from types import SimpleNamespace

import pytest
import torch
from installed import needs
from models import outspoken
from torch import Tensor
from trial_models import MODEL, OPTIONS, learned
from worlds import room

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy
from icrl.runs.distributed import Ranks
from icrl.training.policy_gradient import TrialBatch, discoveries, parameters_of
from icrl.training.trials import Trials, check_streams, check_trials, rooms_beside

ENV = room(size=3, max_episode_steps=5)


def model_of(**form) -> GPT:
    return outspoken(GPT(replace(MODEL, **form), ENV.spec))


def trials_of(model: GPT, ranks: Ranks | None = None, **options) -> Trials:
    return Trials(replace(OPTIONS, **options), ENV, ENV.all_tasks(), model, seed=5, ranks=ranks)


def log_probs_of(model: GPT, batch: TrialBatch) -> Tensor:
    return model.head.log_prob(parameters_of(model.spec, model, batch), batch.action)


@pytest.mark.parametrize("form", [{}, {"tokens": "interleaved", "position": "rope"}, {"obs_encoding": "framed"}])
def test_log_probabilities_of_the_update_equal_those_of_the_cached_actor(form, monkeypatch):
    """To 1e-5, with dropout in training."""
    model, said = model_of(residual_dropout=0.3, **form), []
    choose = GPTPolicy.choose

    def noted(policy, logits, obs, noise):
        action = choose(policy, logits, obs, noise)
        said.append(logits.log_softmax(-1).gather(-1, action[:, None])[:, 0])
        return action

    monkeypatch.setattr(GPTPolicy, "choose", noted)
    batch = trials_of(model.train(), num_mini_batches=1).batch_at(0)
    by_stream, ours = (found[found.sum(1).argsort()] for found in (torch.stack(said, dim=1), batch.log_prob))
    assert by_stream.shape == (12, 20) and torch.allclose(by_stream, ours, atol=1e-5)
    chosen = log_probs_of(model, batch)
    assert torch.allclose(chosen, batch.log_prob, atol=1e-6)  # before the first update of an iteration


@needs("cpu_attention")
@torch.no_grad()
def test_an_actor_of_low_precision_plays_with_nearly_the_same_probabilities():
    """Keys and values of the actor are bfloat16, and its weights and those of the model are not."""
    model = model_of()
    trials = Trials(OPTIONS, ENV, ENV.all_tasks(), model, seed=5, low_precision=True)
    change = log_probs_of(model, batch := trials.batch_at(0)) - batch.log_prob
    assert 1e-5 < change.abs().max() < 0.05 and model.cache_dtype is None


def test_a_trial_longer_than_the_context_is_read_in_the_windows_that_the_actor_saw():
    """Every step counts once, with the probability that the actor gave it after its context was rebuilt."""
    model = model_of(context_len=8)
    trials = trials_of(model, trial_steps=17, num_mini_batches=1)
    batch, (played, log_prob) = trials.batch_at(0), trials.play(0)
    counted = batch.weight > 0
    assert batch.obs.shape == (12 * 4, 8) and batch.weight.mean().item() == pytest.approx(1)
    assert counted.view(12, -1).sum(1).eq(17).all() and batch.weight[counted].unique().numel() == 1
    order = trials._drawn(12, 9, 0)  # of the streams in the batch
    for column, of_play in ((batch.log_prob, log_prob), (batch.obs, played.obs), (batch.reward, played.reward)):
        assert torch.equal(column[counted].view(12, 17), of_play.T[order])
    assert torch.allclose(log_probs_of(model, batch)[counted], batch.log_prob[counted], atol=1e-5)


def test_the_actor_is_the_model_at_the_start_of_the_iteration():
    model = model_of()
    trials = trials_of(model)
    trials.batch_at(0)
    with torch.no_grad():
        model.policy_head.bias += torch.tensor([0.0, 0, 3, 0, 0])
    same, new = trials.batch_at(2), trials.batch_at(3)
    now = [log_probs_of(model, batch) for batch in (same, new)]
    assert not torch.allclose(now[0], same.log_prob, atol=0.1) and torch.allclose(now[1], new.log_prob, atol=1e-6)


def test_the_updates_of_an_iteration_read_every_stream_once_in_an_order_of_its_own():
    trials = trials_of(model_of())
    orders = [torch.arange(12)]
    for iteration in (0, 1):
        parts = [trials.batch_at(3 * iteration + part).log_prob for part in range(3)]
        assert [len(part) for part in parts] == [4, 4, 4]
        same = (torch.cat(parts)[:, None] == trials.play(iteration)[1].T).all(-1)
        assert same.sum(0).eq(1).all() and same.sum(1).eq(1).all()
        orders.append(same.int().argmax(1))
    assert len({tuple(order.tolist()) for order in orders}) == 3


def test_ranks_play_parts_of_the_streams_and_get_equal_shares_of_each_batch():
    """Even if batches have odd numbers of streams. Otherwise shares are together the batches of one process, which is
    in `stages/test_finetune.py`."""
    options = {"num_mini_batches": 5}
    alone = trials_of(model_of(), **options)
    played, log_prob = alone.play(0)
    whole, shares = [alone.batch_at(part) for part in range(5)], []
    for rank in (0, 1):
        columns, ranks = iter([*played, log_prob]), Ranks(rank, 2)

        def gathered(values, dim, columns=columns, rank=rank):
            found = next(columns)
            torch.testing.assert_close(values, found.chunk(2, dim)[rank])
            return found

        ranks.concatenated = gathered
        trials = trials_of(model_of(), ranks=ranks, **options)
        shares.append([trials.batch_at(part) for part in range(5)])
        assert trials.metrics == alone.metrics
    assert all(len(one.obs) == len(other.obs) for one, other in zip(*shares, strict=True))
    ours, theirs = (torch.cat([batch.log_prob for batch in some]) for some in ([*shares[0], *shares[1]], whole))
    assert torch.equal(ours.sort(dim=0).values, theirs.sort(dim=0).values)  # every stream once


def test_tasks_and_noise_are_drawn_anew_for_each_iteration_and_their_trials_do_not_depend_on_the_calls_before():
    trials = trials_of(model_of())
    lives = [trials.play(iteration)[0] for iteration in (0, 1, 0)]
    assert all(map(torch.equal, lives[0], lives[2])) and not torch.equal(lives[0].action, lives[1].action)
    drawn = [trials.tasks_of(iteration)[:, 0].tolist() for iteration in range(6)]
    for tasks in drawn:
        assert len(set(tasks)) == 3 and tasks == [task for task in dict.fromkeys(tasks) for _ in range(4)]
    assert len({tuple(tasks) for tasks in drawn}) > 1


def test_unsolvable_tasks_are_played_last_and_pay_the_bonus_alone():
    trials = trials_of(model_of(), num_unsolvable=2, num_mini_batches=1)
    (played, _), batch = trials.play(0), trials.batch_at(0)
    assert played.reward.shape == (20, 20) and len(batch.obs) == trials.num_streams == 20
    assert played.reward[:, :12].any() and not played.reward[:, 12:].any() and not played.terminated[:, 12:].any()
    assert batch.advantage.ne(0).any(dim=1).all()
    reward, ends = played.reward[:, :12], (played.terminated | played.truncated)[:, :12]
    assert torch.equal(trials.metrics["return"], reward.sum(0).mean())
    new = discoveries(ENV.spec, played)[:, :12]
    assert trials.metrics["discoveries"].item() == pytest.approx(new.sum().item() / 12)
    for name, number in (("first_success", 1), ("last_success", 4)):
        rate = reward[ends & (ends.cumsum(0) == number)].mean().item()
        assert trials.metrics[name].item() == pytest.approx(rate) and rate > 0
    permuted = room(size=3, permute_actions=True)
    tasks = permuted.all_tasks()
    trials = Trials(replace(OPTIONS, num_unsolvable=2), permuted, tasks, model_of(), seed=5)
    assert not torch.equal(*(trials.tasks_of(iteration)[12:] for iteration in (0, 1)))
    assert permuted.unsolvable(tasks)[:, 0].eq(9).all() and torch.equal(permuted.unsolvable(tasks)[:, 1], tasks[:, 1])


@pytest.mark.parametrize(("steps", "known"), [(4, set()), (5, {"first_success", "last_success"})])
def test_a_trial_of_one_episode_has_a_success_and_a_shorter_one_has_none(steps, known):
    trials = trials_of(model_of(), trial_steps=steps, num_mini_batches=1)
    trials.batch_at(0)
    assert trials.metrics.keys() == {"return", "discoveries"} | known


@pytest.mark.parametrize("clock", [("percent", 0.25), ("iterations", 1), ("env_steps", 240), ("updates", 3)])
def test_a_bonus_is_paid_by_its_schedule(clock):
    """It falls to 0 within the first of four iterations, of 12 trials of 20 steps and three updates."""
    falling = {"kind": "linear", "progress": clock[0], "points": [[0, 1.0], [clock[1], 0.0]]}
    model = model_of()
    paid, plain = (trials_of(model, bonus=bonus) for bonus in (falling, 0.0))
    assert not torch.equal(paid.batch_at(0).advantage, plain.batch_at(0).advantage)
    assert torch.equal(paid.batch_at(3).advantage, plain.batch_at(3).advantage)
    assert paid.metrics["discoveries"] == 0


def test_a_model_learns_in_context_from_random_weights():
    """In seconds, in a 3 x 3 room: to find goals, and to find them again in later episodes of a trial."""
    options = replace(OPTIONS, num_tasks=0, num_streams=12, num_mini_batches=2)
    _, history = learned(ENV, options, 30, 0.005)
    assert history[-1]["return"] > 2.5 * history[0]["return"]
    assert history[-1]["last_success"] > history[-1]["first_success"] + 0.1


@pytest.mark.parametrize(("encoding", "corner"), [("coordinates", 0), ("smooth", (MODEL.max_size - 3) // 2)])
def test_trials_visit_other_rooms_in_the_coordinates_of_the_model(encoding, corner):
    """They come last, are drawn anew for each iteration, and change no trial on the training tasks."""
    hidden, form = ENV.all_tasks()[:2], replace(MODEL, obs_encoding=encoding)
    options, tasks = replace(OPTIONS, num_rooms=2, room_sizes=[2, 4]), ENV.all_tasks()[2:]
    family = rooms_beside(SimpleNamespace(finetune=options, model=form), ENV, hidden)
    model, plain = (outspoken(GPT(form, spec)) for spec in (family.spec, ENV.spec))
    plain.load_state_dict(model.state_dict())
    trials = Trials(options, ENV, tasks, model, 5, family=family)
    rooms = [trials.tasks_of(iteration)[12:] for iteration in (0, 1)]
    assert trials.num_streams == 20 and all(len(drawn.unique(dim=0)) == 2 for drawn in rooms)
    assert not torch.equal(*rooms)
    played, _ = trials.play(0)
    alone, _ = Trials(OPTIONS, ENV, tasks, plain, 5).play(0)
    row, column = corner + alone.obs // 3, corner + alone.obs % 3
    assert torch.equal(played.obs[:, :12], row * MODEL.max_size + column)
    assert torch.equal(played.action[:, :12], alone.action) and torch.equal(played.reward[:, :12], alone.reward)
    assert not (
        (played.reward[:, 12:] > 0) & torch.isin(played.next_obs[:, 12:], family.translated(hidden)[:, 0])
    ).any()


def test_a_single_stream_which_has_none_to_be_compared_with_is_refused():
    """With values a stream of each task is enough, if there are several tasks: they are compared with each other."""
    options = replace(OPTIONS, num_streams=1, gae_lambda=0.9, num_mini_batches=1, num_unsolvable=0)
    assert check_streams(options, 2) == 2
    assert Trials(options, ENV, ENV.all_tasks(), model_of(), seed=5).batch_at(0).advantage.ne(0).any(1).all()
    with pytest.raises(ConfigError, match="finetune.num_streams=1"):
        check_streams(replace(options, num_tasks=1), 2)


def test_rooms_beyond_the_model_and_more_mini_batches_than_streams_are_refused():
    small = ["model.max_size=9", "finetune.num_rooms=2"]
    check_trials(load_config([*small, "finetune.room_sizes=[5,9]"]))
    with pytest.raises(ConfigError, match=r"finetune.room_sizes=\[5, 10\]: must be at most model.max_size=9"):
        check_trials(load_config([*small, "finetune.room_sizes=[5,10]"]))
    for ranks, most in ((1, 12), (2, 6)):
        assert check_streams(replace(OPTIONS, num_mini_batches=most), 9, ranks) == 12
        with pytest.raises(ConfigError, match=f"finetune.num_mini_batches={most + 1}: must be at most {most}"):
            check_streams(replace(OPTIONS, num_mini_batches=most + 1), 9, ranks)


def test_trials_that_would_leave_positions_untrained_are_refused():
    """With a vector of its own for each position, from random weights, as shorter windows are in stage two."""
    options = ["model.context_len=160", "finetune.bonus=0", "finetune.num_rooms=0", "finetune.trial_steps=159"]
    for allowed in ("model.position=env_time", "finetune.start=gpt", "finetune.trial_steps=160"):
        check_trials(load_config([*options, "finetune.start=none", "model.position=learned", allowed]))
    with pytest.raises(ConfigError, match="finetune.trial_steps=159 leaves positions untrained"):
        check_trials(load_config([*options, "finetune.start=none", "model.position=learned"]))
