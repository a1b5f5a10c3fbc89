"""Noise in a Box of actions."""

import pytest
import torch
from probes import START, learners_of

from icrl import extensions
from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.randomness import stream_seeds
from icrl.sources import source_class

pytestmark = pytest.mark.skipif("worlds" not in extensions.NAMES, reason="its worlds are an extension")


def test_continuous_noise_by_hand() -> None:
    """At 0.45 of the run the noise is a half: the mean of a uniform action and the planner's."""
    env = make_env(load_config(["env=point_robot"]).env)
    _, step = env.reset(env.all_tasks()[:6], stream_seeds(0, 6))
    noise = torch.rand(6, generator=torch.Generator().manual_seed(1))
    found = {}
    for name, percent in (("random", 0.0), ("noise_distillation", 0.45), ("optimal", 0.0)):
        learners = learners_of(name, 2, env.spec)
        learners.set_clock(START._replace(percent=percent))
        found[name], _ = learners.act((), step, noise)
        again, _ = learners.act((), step._replace(obs=step.obs + 1), noise)
        assert again.equal(found[name])
    assert found["optimal"].equal(step.optimal_action)
    assert (found["random"] != found["random"].flip(1)).all() and found["random"].abs().max() <= 1
    half = (found["random"] + found["optimal"]) / 2
    assert found["noise_distillation"].allclose(half, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["env=pendulum", "source=optimal"], "needs the optimal action, which is unknown with env.name=pendulum"),
        (["env=cart_pole", "source=noise_distillation"], "needs the optimal action, which is unknown"),
        (["env=point_robot", "source=noise_distillation", "source.max_performance=0.5"], "needs exact expectations"),
    ],
)
def test_sources_that_do_not_fit_are_refused(options: list[str], message: str) -> None:
    config = load_config(options)
    env, device = make_env(config.env), torch.device("cpu")
    with pytest.raises(ConfigError, match=message):
        source_class(config.source.name).create(config, env, env.all_tasks()[:1], stream_seeds(0, 1), device)
