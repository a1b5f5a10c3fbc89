"""Curves and histograms of parameters, gradients and policies."""

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor

from icrl.runs.metrics import MetricLogger, SummariesConfig

Policy = Callable[[], tuple[Tensor, dict[str, Tensor]]]  # action probabilities `[..., A]`, and a network's outputs


def inspect(
    logger: MetricLogger,
    options: SummariesConfig,
    step: int,
    parameters: Iterable[tuple[str, Tensor]],
    policy: Policy,
    data: Mapping[str, Tensor],
    prefix: str = "",
) -> None:
    """Add the curves and histograms chosen by `options`: of parameters, the policy, and the data of the update.
    `prefix` precedes each tag, for curves with another step axis."""
    if options.grads_and_vars:
        norms, values = parameters_and_gradients(parameters)
        logger.scalars(f"{prefix}parameters", norms, step)
        logger.histograms({f"{prefix}{tag}": value for tag, value in values.items()}, step)
    if options.action_distributions or options.outputs:
        probabilities, outputs = policy()
        if options.action_distributions:
            means, entropies = action_distribution(probabilities)
            logger.scalars(f"{prefix}actions", means, step)
            logger.histograms({f"{prefix}actions/entropies": entropies}, step)
        if options.outputs:
            logger.histograms({f"{prefix}outputs/{name}": value for name, value in outputs.items()}, step)
    if options.debug:
        logger.histograms({f"{prefix}data/{name}": column for name, column in data.items()}, step)


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


def action_distribution(probabilities: Tensor) -> tuple[dict[str, float], Tensor]:
    """Mean of each action's probability `[..., A]` and mean entropy in nats, and all entropies."""
    flat = probabilities.flatten(0, -2).float()
    entropy = -(flat * flat.clamp(min=1e-12).log()).sum(-1)
    means = {f"probability_{action}": value for action, value in enumerate(flat.mean(0).tolist())}
    return means | {"entropy": entropy.mean().item()}, entropy
