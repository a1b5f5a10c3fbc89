"""What summaries show of parameters, gradients and policies."""

from collections.abc import Iterable

from torch import Tensor


def parameters_and_gradients(named: Iterable[tuple[str, Tensor]]) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Norm and values of every parameter, and of its gradient where it has one: `value_norm/<name>`,
    `gradient_norm/<name>`, and for histograms `value/<name>`, `gradient/<name>`."""
    norms: dict[str, float] = {}
    values: dict[str, Tensor] = {}
    for name, parameter in named:
        for kind, tensor in (("value", parameter.detach()), ("gradient", parameter.grad)):
            if tensor is not None:
                norms[f"{kind}_norm/{name}"] = tensor.float().norm().item()
                values[f"{kind}/{name}"] = tensor
    return norms, values


def action_distribution(probabilities: Tensor) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Of action probabilities `[..., A]`: the mean of each action's and the mean entropy in nats, and the entropies for
    a histogram."""
    flat = probabilities.flatten(0, -2).float()
    entropy = -(flat * flat.clamp(min=1e-12).log()).sum(-1)
    means = {f"probability_{action}": value for action, value in enumerate(flat.mean(0).tolist())}
    return means | {"entropy": entropy.mean().item()}, {"actions/entropies": entropy}
