"""Results on a GPU: those of the CPU, and the same in every run. Without a GPU all of it runs on the CPU.

`make gpu` runs these tests first, see `benchmarks/gpu.py`."""

import subprocess
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import SMALL, done, run
from installed import INDUCTION
from models import outspoken
from torch import Tensor, nn

from benchmarks import gpu
from benchmarks.stage_one import unrolls
from benchmarks.stage_two import HALFWAY, random_batch
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.contracts import Batch
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.evaluation.in_context import play_steps
from icrl.nn.gpt import GPT, Window, context_of
from icrl.nn.gpt_policy import GPTPolicy
from icrl.nn.transformer import Attention
from icrl.objectives import objective_class
from icrl.randomness import Noise, stream_seeds
from icrl.runs.device import REPEATED
from icrl.runs.distributed import Ranks
from icrl.runs.files import read_json
from icrl.sources import source_options
from icrl.training.updates import Updater

CPU = torch.device("cpu")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CONFIG = load_config(["model.context_len=24", "trainer.mini_batch_size=8", "data.kept_steps=0"])
STEPS = 60 if torch.cuda.is_available() else 30  # of a rollout, longer than the context; without a GPU nothing differs
FORMS = ({}, {"tokens": "interleaved"}, {"tokens": "cross"}, {"induction": INDUCTION[-1], "obs_encoding": "cell"})
LOSSES = {"none": 1e-3, "bfloat16": 3e-2, "float16": 1e-2}  # by precision: distance from those in float32 on the CPU


def model_of(form: dict, device: torch.device = DEVICE) -> GPT:
    """The same model on any device."""
    torch.manual_seed(0)
    return outspoken(GPT(CONFIG.model.model_copy(update=form), make_env(CONFIG.env).spec)).to(device)


def batch_on(device: torch.device) -> Batch:
    """The same windows on any device."""
    torch.manual_seed(1)
    batch = random_batch(CONFIG, make_env(CONFIG.env).spec)
    return Batch(*(column.to(device) for column in batch))


def losses(model: nn.Module, device: torch.device, precision: str, config: Config = CONFIG) -> list[float]:
    """Losses of some updates."""
    config = config.model_copy(update={"device": config.device.model_copy(update={"amp_dtype": precision})})
    objective = objective_class("ad")(config.objective, make_env(config.env).spec)
    updater = Updater(model.train(), objective, config, device, Ranks())
    return [float(updater.update(batch_on(device), HALFWAY)["loss"]) for _ in range(5)]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_logits_are_those_of_the_cpu(form: dict) -> None:
    found = [
        model_of(form, device).eval()(context_of(Window.of(batch_on(device)))).detach().cpu()
        for device in (DEVICE, CPU)
    ]
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("precision", LOSSES)
def test_losses_are_those_of_the_cpu_and_of_every_run(precision: str) -> None:
    first, again = (model_of({}) for _ in range(2))
    found = losses(first, DEVICE, precision)
    assert found == losses(again, DEVICE, precision)
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    exact = losses(model_of({}, CPU), CPU, "none")
    assert found == pytest.approx(exact, rel=LOSSES[precision])
    assert exact[-1] < exact[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("length", "groups"), [(1, 2), (9, 2), (9, 1)])
def test_fused_attention_is_the_product_written_out(dtype: torch.dtype, length: int, groups: int) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(3, heads, steps, 8, generator=generator).to(DEVICE, dtype)
        for heads, steps in ((2, length), (groups, 9), (groups, 9))
    )
    found = Attention.attend(query, key, value, None, 0.0, is_causal=length > 1)
    key, value = (part.repeat_interleave(2 // groups, 1).float() for part in (key, value))
    scores = query.float() @ key.mT / 8**0.5
    mask = torch.ones(length, 9, dtype=torch.bool, device=DEVICE).tril(9 - length)
    expected = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ value
    torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=2e-2 if dtype == torch.bfloat16 else 1e-5)


def played(device: torch.device, form: dict) -> list[Tensor]:
    env = make_env(CONFIG.env, device)
    policy = GPTPolicy(model_of(form, device), 1.0, 1.0, 0.5)
    steps = play_steps(policy, env, env.all_tasks()[:5].to(device), 8, STEPS, 0)
    return [column.cpu() for column in (steps.action, steps.reward, steps.obs)]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_rollout_with_cache_and_rebuilt_contexts_is_that_of_the_cpu(form: dict) -> None:
    """A sampled action may differ where two are equally near, and then the rest of its stream does."""
    found, again, exact = played(DEVICE, form), played(DEVICE, form), played(CPU, form)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
    same = (found[0] == exact[0]).all(0) & (found[1] == exact[1]).all(0) & (found[2] == exact[2]).all(0)
    assert same.float().mean() >= 0.9


def test_a_captured_rollout_is_the_one_played_step_by_step() -> None:
    """With other inputs, with other weights in the same tensors, and with more streams."""
    env, model = make_env(CONFIG.env, DEVICE), model_of({}).eval()
    tasks = env.all_tasks().to(DEVICE)

    def play(tasks: Tensor, seeds: Tensor) -> list[Tensor]:
        policy = GPTPolicy(model, 1.0, 1.0, 0.5)
        return [*rollout(policy, env, start_streams(policy, env, tasks, seeds), STEPS, Noise(seeds))[0]]

    captured, found = REPEATED[-1](play), list[Tensor]()
    for number, seed in ((5, 0), (5, 1), (5, 2), (5, 3), (8, 4), (8, 5), (8, 6)):
        if seed == 3:
            model.policy_head.weight.data.neg_()
        given = tasks[:number], stream_seeds(seed, number).to(DEVICE)
        for one, other in zip(captured(*given), play(*given), strict=True):
            assert torch.equal(one, other)
        found.append(captured(*given)[1])
    assert not torch.equal(found[1], found[2])


def test_what_waits_for_the_device_is_not_captured() -> None:
    captured = REPEATED[-1](lambda x: [x + torch.tensor(x.tolist(), device=DEVICE)])
    for number in range(4):
        assert captured(torch.full((3,), number, device=DEVICE))[0].tolist() == 3 * [2 * number]


@pytest.mark.parametrize("source", [name for name in ("a2c", "a3c") if name in source_options()])
def test_stage_one_is_that_of_the_cpu(source: str) -> None:
    options = ["source.num_learners=1", "tasks.num_train=3", f"source={source}", "source.num_env_steps=100000"]
    config = load_config(options)

    def rewards(device: torch.device) -> Tensor:
        loop = unrolls(config, device)
        return torch.cat([next(loop).reward.cpu() for _ in range(20)])

    found, exact = rewards(DEVICE), rewards(CPU)
    assert torch.equal(found, rewards(DEVICE))
    assert (found == exact).float().mean() > 0.8
    assert exact.any()


@pytest.mark.skipif(DEVICE == CPU, reason="other tests run the stages on a CPU")
def test_checkpoints_of_a_device_are_read_on_the_other(tmp_path: Path) -> None:
    """All stages on the GPU, and an evaluation of their model on the CPU."""
    run = partial(done, preset=(*SMALL, "env.size=4", "policy.model=finetuned", f"device.type={DEVICE.type}"))
    for stage in ("train_agents", "train_gpt", "finetune", "evaluate"):
        run(stage, tmp_path)
    run("evaluate", tmp_path, "device.type=cpu", "name=on_cpu", "run=small", "histories=small")
    found = [read_json(path)["config"]["device"]["type"] for path in sorted(tmp_path.rglob("results.json"))]
    assert sorted(found) == sorted([DEVICE.type, "cpu"])


def test_the_report_runs_all_of_its_parts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`make gpu` in the smallest sizes: every command ends well, and every table is there. Tests and pipelines
    run in this process, without pictures."""
    run_process = subprocess.run

    def run_here(command: list[str], **given: Any) -> subprocess.CompletedProcess[str]:
        options = command[3:]
        if "pytest" in command:
            with redirect_stdout(given["stdout"]):
                return subprocess.CompletedProcess(command, pytest.main(options))
        if "src.pipeline" not in command:
            return run_process(command, **given)
        root = next(one.removeprefix("root=") for one in options if one.startswith("root="))
        outcome = run("pipeline", Path(root), preset=options)
        given["stdout"].write(outcome.out + outcome.err)
        return subprocess.CompletedProcess(command, outcome.code)

    monkeypatch.setattr(subprocess, "run", run_here)
    threads = torch.get_num_threads()
    try:
        gpu.main(tiny=True)
    finally:
        torch.set_num_threads(threads)
    shown = capsys.readouterr().out
    page = shown[shown.index("# On a GPU") :]
    assert page.count("exit status 0") == 3 and "6 passed" in page, page
    assert "Update, reference recipe" in page and "Generation" in page and "Stage one" in page
