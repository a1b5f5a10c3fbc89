"""Random numbers as functions of (seed, counter), so that streams do not depend on each other.

A shared generator would give a stream other numbers as soon as another stream is added or a run is resumed. The mixer
is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014),
in int64 arithmetic that wraps around.
"""

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
_FIRST = -4658895280553007687  # 0xBF58476D1CE4E5B9
_SECOND = -7723592293110705685  # 0x94D049BB133111EB
_UNIFORM_BITS = 24  # bits that a float32 holds exactly


def _shift_right(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)  # logical: the sign bit moves too


def mix(seed: Tensor, counter: Tensor | int) -> Tensor:
    """Hash (seed, counter), int64 of shapes that broadcast, to 64 random bits as int64."""
    if isinstance(counter, Tensor):
        along: Tensor | int = (counter + 1) * _GOLDEN
    else:  # wraps around as a tensor does
        along = ((int(counter) + 1) * _GOLDEN + 2**63) % 2**64 - 2**63
    x = seed * _SECOND + along
    x = (x ^ _shift_right(x, 30)) * _FIRST
    x = (x ^ _shift_right(x, 27)) * _SECOND
    return x ^ _shift_right(x, 31)


def uniform(seed: Tensor, counter: Tensor | int) -> Tensor:
    """Uniform numbers in [0, 1), float32, one for each (seed, counter)."""
    return _shift_right(mix(seed, counter), 64 - _UNIFORM_BITS).float() / (1 << _UNIFORM_BITS)


def integers(seed: Tensor, counter: Tensor | int, high: Tensor | int) -> Tensor:
    """Uniform integers in [0, high), int64, one for each (seed, counter); with `high` < 2**31 the bias is < 2**-31."""
    return _shift_right(mix(seed, counter), 2) % high


def stream_seeds(seed: int, num_streams: int, purpose: int = 0) -> Tensor:
    """One seed for each stream, `[B]`: that of stream k does not depend on the number of streams. Different purposes of
    one seed (starts, noise, parameters) give unrelated seeds. Raises `ValueError` for a seed of more than 64 bits."""
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed={seed}: must fit in 64 bits")
    return mix(mix(torch.tensor(seed), purpose), torch.arange(num_streams))


class Noise:
    """Noise of policies: the number at step t of stream k is a function of (seed of k, t)."""

    def __init__(self, seeds: Tensor, time: int = 0) -> None:
        self.seeds = seeds  # [B]
        self.time = time

    def draw(self, num_steps: int) -> Tensor:
        """The next `num_steps` steps of noise, `[T, B]` in [0, 1)."""
        times = torch.arange(self.time, self.time + num_steps, device=self.seeds.device)
        self.time += num_steps
        return uniform(self.seeds, times[:, None])


def seeds_of(noise: Tensor) -> Tensor:
    """Seeds `[B]` int64 for more random numbers, from a policy's `noise` `[B]`."""
    return (noise * (1 << _UNIFORM_BITS)).long()


def several(noise: Tensor, number: int, purpose: int = 0) -> Tensor:
    """Uniform numbers `[B, number]` from one `noise` `[B]`, unrelated to it, to each other and to another `purpose`."""
    seed = mix(seeds_of(noise), purpose)
    return uniform(seed[:, None], torch.arange(number, device=noise.device))


def normal(noise: Tensor) -> Tensor:
    """Standard normal numbers, float32, from uniform ones by inversion."""
    half = 0.5 / (1 << _UNIFORM_BITS)  # the middle of each possible uniform number, never 0
    return torch.special.ndtri(noise.double() + half).float()


def cumulative(probabilities: Tensor, dim: int = -1) -> Tensor:
    """Inner steps of the cumulative distribution of a categorical, along `dim`, `[..., A] -> [..., A - 1]`."""
    return probabilities.cumsum(dim).narrow(dim, 0, probabilities.shape[dim] - 1)


def draw(steps_up: Tensor, noise: Tensor, dim: int = 1) -> Tensor:
    """Sample from categoricals, given `cumulative(...)` `[B, A - 1]`, or with dim=0 `[A - 1, B]`, and a uniform number
    each `[B]`: `[B]` int64."""
    return (steps_up <= noise.unsqueeze(dim)).sum(dim)


def draw_possible(probabilities: Tensor, noise: Tensor) -> Tensor:
    """Sample from categoricals `[B, A]`, given a uniform number each `[B]`: `[B]` int64, never of probability 0.

    If rounding leaves the sum below 1, `draw` could return the last action although it has probability 0."""
    actions = torch.arange(probabilities.shape[1], device=noise.device)
    last = (actions * (probabilities > 0)).amax(1)
    return torch.minimum(draw(cumulative(probabilities), noise), last)


def sampled_or_greedy(probabilities: Tensor, sample_probability: float) -> Tensor:
    """Draw from `probabilities` `[..., A]` with probability `sample_probability`, else take the most probable action:
    sample_probability * p + (1 - sample_probability) * 1[a = argmax p]."""
    mode = torch.zeros_like(probabilities).scatter_(-1, probabilities.argmax(-1, keepdim=True), 1.0)
    return sample_probability * probabilities + (1 - sample_probability) * mode
