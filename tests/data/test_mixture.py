"""Mixtures: the stores that fit together, and the sampling of their windows."""

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import ALIKE, CONFIG, CPU, NUM_ROWS, TRAIN, codes_of, histories_of, random_done

from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.options import replace
from icrl.contracts import ConfigError, Json, Rollout
from icrl.data.history_store import HistoryWriter
from icrl.data.windows import Mixture, Windows, check_stores, described, open_stores
from icrl.randomness import integers, mix
from icrl.spaces import EnvSpec, discrete_spec

LENGTHS = [20, 35, 11]  # steps of a row, for each of three stores
NUM_CODES = [NUM_ROWS * (length - 4) for length in LENGTHS]  # windows of 5 steps


@cache
def part_of(store: int) -> Windows:
    """Windows of store k, whose rows are k * NUM_ROWS, k * NUM_ROWS + 1, ..., so that a code tells its store."""
    done = random_done(LENGTHS[store], seed=store, density=0.1)
    return Windows(histories_of(done, first_row=store * NUM_ROWS), CONFIG, ALIKE, TRAIN, 5, CPU)


def test_a_batch_is_a_function_of_seed_and_number_alone() -> None:
    first, second = (Mixture([part_of(0), part_of(1)], [2, 1]) for _ in range(2))
    for t in (7, 0, 3):
        first.batch(5, t, 16)
    torch.manual_seed(123)
    assert codes_of(first.batch(1, 4, 16)) == codes_of(second.batch(1, 4, 16))
    shares = [codes_of(first.batch(1, 4, 16, rank, 4)) for rank in range(4)]  # data parallel: ranks take turns
    assert [code for turn in zip(*shares, strict=True) for code in turn] == codes_of(first.batch(1, 4, 16))
    different = [codes_of(first.batch(seed, t, 16)) for seed, t in ((1, 4), (1, 5), (2, 4), (0, 0), (4, 1))]
    assert all(different[i] != different[j] for i in range(5) for j in range(i))
    assert codes_of(first.batch(1, 4, 8)) == codes_of(first.batch(1, 4, 16))[:8]


@given(seed=st.integers(0, 10**9), t=st.integers(0, 10**6), size=st.integers(1, 20), store=st.integers(0, 2))
@settings(max_examples=15)
def test_a_mixture_of_one_is_its_windows_drawn_uniformly(seed: int, t: int, size: int, store: int) -> None:
    """Bit for bit. A second store does not change what is drawn of this one."""
    part, key = part_of(store), mix(torch.full((size,), seed), t)
    plain = codes_of(part.at(integers(key, torch.arange(size), part.num_windows)))
    for weights in ([], [0.3]):
        assert codes_of(Mixture([part], weights).batch(seed, t, size)) == plain
    mixed = codes_of(Mixture([part, part_of((store + 1) % 3)], [1, 1]).batch(seed, t, size))
    own = range(store * NUM_ROWS, (store + 1) * NUM_ROWS)
    assert all(code == alone for code, alone in zip(mixed, plain, strict=True) if code[0][0] in own)


@pytest.mark.parametrize(
    ("weights", "shares"),
    [([], [count / sum(NUM_CODES) for count in NUM_CODES]), ([10, 0.5, 29.5], [0.25, 0.0125, 0.7375])],
)
def test_every_window_is_as_likely_as_its_store_says(weights: list[float], shares: list[float]) -> None:
    """All windows of a store alike, and no other: chi-square of 20 000 draws over all windows of all stores."""
    mixture = Mixture([part_of(store) for store in range(3)], weights)
    assert mixture.shares == pytest.approx(shares)
    codes = [set(codes_of(part.at(torch.arange(part.num_windows)))) for part in mixture.parts]
    assert [len(one) for one in codes] == NUM_CODES and mixture.num_windows == sum(NUM_CODES)
    drawn = Counter(code for t in range(50) for code in codes_of(mixture.batch(3, t, 400)))
    expected = {code: 20_000 * share / len(one) for one, share in zip(codes, shares, strict=True) for code in one}
    assert set(drawn) <= set(expected)
    chi_square = sum((drawn[code] - count) ** 2 / count for code, count in expected.items())
    freedom = len(expected) - 1
    assert abs(chi_square - freedom) < 4 * (2 * freedom + sum(1 / count for count in expected.values())) ** 0.5


SPEC = discrete_spec(num_obs=25, num_actions=5, reward_values=(0.0, 1.0), width=5, max_episode_steps=15)
TASKS = {"all": [[3], [7], [9]], "seed": 0, "train": [2, 0], "held_out": [1]}


@cache
def checked(*options: str) -> Config:
    return load_config(["experiment=tiny", "data.num_development_tasks=0", "trainer.evaluate=false", *options])


def config_of(root: Path, *options: str) -> Config:
    return replace(checked(*options), root=str(root))


def write(config: Config, spec: EnvSpec = SPEC, tasks: Json = TASKS, num_steps: int = 20) -> None:
    """Histories of zeros, as a run with this configuration would leave them."""
    rows = {"num_learners": config.source.num_learners, "num_envs": config.source.num_envs}
    writer = HistoryWriter(config.folder("histories"), spec, num_steps, tasks, rows, config.model_dump())
    num_rows = len(tasks["train"]) * rows["num_learners"] * rows["num_envs"]
    writer.add(Rollout(*[torch.zeros(num_steps, num_rows)] * 8))
    writer.commit()
    writer.finish()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """With histories `a` of one source, and `b` of another with more learners and longer lives."""
    write(config_of(tmp_path, "name=a"))
    write(config_of(tmp_path, "name=b", "source=q_learning", "source.num_learners=7"), num_steps=30)
    return tmp_path


REFUSALS = [  # option, other parts of spec and tasks of `c`, histories, message
    ("", {}, {}, "[b]", "b was made with source.name=q_learning, but this configuration has a2c"),
    ("", {}, {}, "[a,d]", "no histories"),
    ("env.size=6", {}, {}, "[a,b,c]", "c was made with env.size=6, but this configuration has 5"),
    ("", {"reward_values": (0.0, 2.0)}, {}, "[a,b,c]", "env.reward_values is [0.0, 2.0] in {c} and [0.0, 1.0] in {a}"),
    ("", {}, {"train": [1, 0], "held_out": [2]}, "[a,c]", "tasks.held_out is [2] in {c} and [1] in {a}"),
    ("", {}, {"train": [0, 2]}, "[a,c]", "tasks.train is [0, 2] in {c} and [2, 0] in {a}"),
]


@pytest.mark.parametrize(("option", "spec", "tasks", "histories", "message"), REFUSALS)
def test_unlike_stores_are_refused(root: Path, option, spec, tasks, histories, message) -> None:
    """So no task that one store learns on is held out in another, whatever the options say."""
    write(config_of(root, "name=c", *filter(None, [option])), SPEC._replace(**spec), TASKS | tasks)
    with pytest.raises(ConfigError) as refused:
        open_stores(config_of(root, "name=mixed", f"histories={histories}"))
    assert message.format(a=root / "histories/a", c=root / "histories/c") in str(refused.value)


def test_a_run_continues_with_its_own_histories_alone(root: Path) -> None:
    stores = open_stores(config_of(root, "name=mixed", "histories=[a,b]"))
    assert [(store.folder.name, len(store.row_tasks)) for store in stores] == [("a", 2 * 4 * 5), ("b", 2 * 7 * 5)]
    (alone,) = open_stores(config_of(root, "name=mixed", "histories=a"))
    assert alone.checksum == stores[0].checksum
    noted = json.loads(json.dumps(described(stores)))
    assert [one["name"] for one in noted] == ["a", "b"]
    (root / "histories/a").rename(root / "histories/renamed")
    for same in (stores, open_stores(config_of(root, "name=mixed", "histories=[renamed,b]"))):
        check_stores(same, noted, root / "logs")
    write(config_of(root, "name=a"), num_steps=25)
    anew = open_stores(config_of(root, "name=mixed", "histories=[a,b]"))
    for some in (anew, stores[:1], stores[::-1], [*stores, anew[0]]):
        with pytest.raises(ConfigError, match=rf"^{root}/logs was made with histories a \(sha256 .* or another name="):
            check_stores(some, noted, root / "logs")
