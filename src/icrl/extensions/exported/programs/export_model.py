"""Export a model to a folder with all that is needed to act, which `icrl.load` reads anywhere.

python -m src.export_model [KEY=VALUE ...]      logs/<run>/<policy.model>/ -> logs/<name>/export.../

`model.safetensors` has the weights, `config.json` every option of the training, and `README.md` is a model card with
the results of `src.evaluate`, if there are any. `policy.model` and `evaluation.checkpoint` choose the model, as for
`src.evaluate`; that of `policy.model=finetuned` is in logs/<name>/export-policy=finetuned/.
"""

from contextlib import suppress
from pathlib import Path

from icrl.app.root import Config
from icrl.config.options import refuse
from icrl.contracts import Json, PipelineError
from icrl.evaluation import trained
from icrl.evaluation.kinds import policy_kind, policy_suffixes
from icrl.evaluation.report import read_results
from icrl.extensions.exported.folder import write_exported
from icrl.runs.device import prepare
from icrl.runs.files import only_writer
from icrl.spaces import EnvSpec

LARGE = "model.num_layers, model.embed_dim"


def main(config: Config) -> Path:
    """Export a model; returns the folder."""
    device, policy = prepare(config), config.policy
    opened = policy_kind(config.policy, config.finetune).open(config, device)
    given = f"policy.model={policy.model} and policy.advantage_scale={policy.advantage_scale:g}"
    refuse(not opened.is_plain, f"{given}: only a sequence model on its own can be exported")
    suffix = trained.suffix_of(policy_suffixes(config))
    folder = config.folder("logs") / f"export{suffix}"
    about = {"step": opened.step, "state_sha256": opened.checksum, "description": opened.described}
    model = opened.make(config, EnvSpec.of(opened.described["env"]), device)
    with only_writer(folder.parent):  # so that a folder to be taken along has no lock
        write_exported(folder, model.state_dict(), about, _results(config, suffix, opened.checksum))
    print(f'exported to {folder}\nuse it anywhere: icrl.load("{folder}")')
    return folder


def _results(config: Config, suffix: str, checksum: str) -> Json | None:
    """Results of the evaluation of this checkpoint on held-out tasks; None if there are none."""
    with suppress(PipelineError):
        results, _ = read_results(config.folder("logs") / f"evaluation{suffix}")
        return results if results["checkpoint"] == checksum else None
    return None
