"""Small models that learn from trials."""

from typing import Any

import torch

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.envs.core import TensorEnv
from icrl.nn.gpt import GPT
from icrl.runs.distributed import Ranks
from icrl.training.optimizers import AdamWConfig, make_optimizer
from icrl.training.policy_gradient import CRITICS, FinetuneConfig, PolicyGradient
from icrl.training.trials import Trials

MODEL = replace(load_config(["experiment=tiny"]).model, context_len=20, num_layers=1, num_heads=2)
OPTIONS = FinetuneConfig(trial_steps=20, num_streams=4, num_tasks=3, num_mini_batches=3, num_iterations=4)


def learned(
    env: TensorEnv, options: FinetuneConfig, iterations: int, rate: float, **form: Any
) -> tuple[GPT, list[dict[str, float]]]:
    """Model that trials have trained from random weights, and the metrics of each update."""
    torch.manual_seed(0)
    model, history = GPT(replace(MODEL, **form), env.spec), []
    made = PolicyGradient if options.gae_lambda is None else CRITICS[-1](model, Ranks())
    trials = Trials(options, env, env.all_tasks(), model, seed=0)
    objective = made(options, env.spec, model.head, dict)
    optimizer = make_optimizer(model, AdamWConfig(learning_rate=rate))
    for update in range(iterations * trials.config.num_mini_batches):
        terms, _ = objective(model, trials.batch_at(update))
        optimizer.zero_grad()
        torch.stack([objective.weights[name] * term for name, term in terms.items()]).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        history.append({name: value.item() for name, value in trials.metrics.items()})
    return model, history
