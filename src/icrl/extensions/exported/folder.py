"""Exported model: a folder with all that is needed to act, in the layout of model hubs.

model.safetensors   weights by name
config.json         description of the checkpoint: options, spaces, tasks, histories; with checksums
README.md           model card: what it learned from, how to use it, results
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from icrl.config.options import refuse
from icrl.contracts import Json, PipelineError
from icrl.evaluation import tables
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import InContextPolicy
from icrl.runs.checkpoint import DamagedCheckpointError, check_described
from icrl.runs.files import content_of, read_json, write_atomically, write_json
from icrl.spaces import EnvSpec

WEIGHTS, ABOUT, CARD = "model.safetensors", "config.json", "README.md"
_FORM = {"step": int, "weights_sha256": str, "description": dict}


def save(policy: InContextPolicy, folder: str | Path) -> Path:
    """Save a policy to `folder` as weights, options and a model card, as `export_model` does; returns it. `icrl.load`
    reads it.

    Raises `ConfigError` if the folder holds anything but a model, `PipelineError` if it cannot be written."""
    folder, model = Path(folder).absolute(), policy.policy.model
    plain = isinstance(model, GPT) and type(model) is (model.head.model or GPT)
    refuse(not plain, f"{folder}: a {type(model).__name__} is not saved; only a sequence model on its own can be")
    refuse(folder.exists() and not folder.is_dir(), f"{folder}: is a file; give a folder")
    begun = f"{WEIGHTS}.partial"  # by a save that was killed
    held = [path.name for path in folder.glob("*") if path.name != begun] if not (folder / WEIGHTS).exists() else []
    refuse(held, f"{folder}: holds {', '.join(sorted(held)[:3])}, and no model; give an empty or new folder")
    write_exported(folder, model.state_dict(), policy.about, None)
    return folder


def write_exported(folder: Path, weights: dict[str, Tensor], about: Json, results: Json | None) -> None:
    """Write a model of stage two with the sidecar `about` of its checkpoint; `results` of its evaluation, if there was
    one, go into the card. The description is written last: until then it is missing, or not that of the weights."""
    own = {name: weight.detach().cpu().contiguous().clone() for name, weight in weights.items()}  # tied ones apart
    numbers = sum(weight.numel() for weight in own.values())
    write_atomically(folder / WEIGHTS, content := safetensors.torch.save(own, {"format": "pt"}))
    write_atomically(folder / CARD, _card(about["description"], about["step"], numbers, results).encode())
    write_json(folder / ABOUT, {**about, "weights_sha256": hashlib.sha256(content).hexdigest()})


def read_exported(folder: Path) -> tuple[dict[str, Any], Json, Path]:
    """Weights, the sidecar of the checkpoint that they are from, and its file. Raises `DamagedCheckpointError` if one
    of the two files was changed or is missing."""
    try:
        about = read_json(folder / ABOUT, _FORM)
        content = (folder / WEIGHTS).read_bytes()
        whole = hashlib.sha256(content).hexdigest() == about["weights_sha256"]
    except (PipelineError, OSError) as error:
        raise DamagedCheckpointError(f"{folder} cannot be read: {error}; export the model again") from error
    if not whole:
        raise DamagedCheckpointError(
            f"{folder / WEIGHTS} is damaged, or does not belong to {ABOUT}; export the model again"
        )
    check_described(about["description"], folder)
    with content_of(folder / WEIGHTS, DamagedCheckpointError):
        return safetensors.torch.load(content), about, folder / ABOUT


def _card(described: Json, step: int, num_parameters: int, results: Json | None) -> str:
    """Model card in Markdown, with the front matter that model hubs read."""
    config, tasks = described["config"], described["tasks"]
    world, model = config["env"], config["model"]
    options = ", ".join(f"`{key}={value}`" for key, value in world.items() if key not in ("name", "tasks"))
    heading = ["---", "library_name: icrl", "pipeline_tag: reinforcement-learning", "tags:", "- in-context-rl", "---"]
    spec = EnvSpec.of(described["env"])
    facts = {
        "world": f"`env.name={world['name']}`: {options}",
        "tasks": f"{len(tasks['train'])} for training, {len(tasks['held_out'])} held out of {len(tasks['all'])}",
        "observations, actions": f"`{spec.observation_space}`, `{spec.action_space}`",
        "histories": ", ".join(f"`{one['name']}` (SHA-256 {one['sha256'][:12]})" for one in described["histories"]),
        "objective": f"`objective.name={config['objective']['name']}`",
        "model": f"{num_parameters:,} parameters, trunk `{model['trunk']}`, context {model['context_len']} steps",
        "training": f"{step} updates, seed {config['seed']}",
    }
    if described["program"] == "finetune":
        trials = config["finetune"]
        once = "policy gradients" if trials["start"] == "none" else "first to imitate, then policy gradients"
        facts["learned"] = f"{once} over {trials['num_iterations']} rounds of trials of {trials['trial_steps']} steps"
    lines = [
        *heading,
        f"\n# {config['name']}\n",
        "A frozen sequence model that learns a new task from its context, episode after episode, without any update of "
        "its weights.\n",
        "| | |\n|---|---|",
        *(f"| {name} | {fact} |" for name, fact in facts.items()),
        "\n## Use\n",
        '```python\nimport gymnasium, icrl\n\npolicy = icrl.load("PATH OF THIS FOLDER")\n'
        "env = gymnasium.make(...)  # an environment with these spaces\n"
        "print(icrl.rollout(policy, env, num_episodes=20))\n```",
        "\nThe context is lost with `policy.reset()`. `config.json` has every option of the training.",
    ]
    if results:
        told = [*tables.tables(results), tables.summary(results, spec)]
        lines += ["\n## Results\n", "```", "\n\n".join(told), "```"]
        how = "\nSeeds {seeds}, {num_streams} streams a task; decoding: {decoding}."
        lines += [how.format(**results["protocol"])]
    lines += [
        "\n## Limits\n",
        "It can act only in worlds with the same spaces and rewards, and learns only tasks that are like those of its "
        "training. Nothing was measured beyond what is above.\n",
    ]
    return "\n".join(lines)
