"""Stage two with several seeds as one program: each run is as if it was trained alone, apart from rounding.

python -m src.train_seeds seeds=[0,1,2] [KEY=VALUE ...]      -> logs/<name>-seed0/gpt/, logs/<name>-seed1/gpt/, ...

Histories are those of train_gpt. Each run is an ordinary run of train_gpt, which can also continue it alone.
"""

from contextlib import ExitStack, closing
from pathlib import Path

from icrl.app.root import Config
from icrl.config.options import replace
from icrl.data.windows import Mixture
from icrl.envs import make_env
from icrl.extensions.seeds.stack import SeedsConfig, check_together, fit_together
from icrl.programs.train_gpt import GROUPS, Parts, prepared
from icrl.runs.files import digest
from icrl.training.program import RunContext, compared, open_run

OPTIONS = SeedsConfig
LARGE = "seeds, trainer.mini_batch_size, model.context_len, model.embed_dim"


def main(config: SeedsConfig) -> list[Path]:
    """Train, or resume training; returns the folders with the checkpoints."""
    with closing(make_env(config.env)) as env:
        check_together(config, env.spec)
    members, runs = members_of(config), list[tuple[RunContext, Parts]]()
    shared: dict[str, Mixture] = {}  # runs may have the same windows
    with ExitStack() as stack:
        for member in members:
            run = open_run(member, "train_gpt", member.folder("logs") / "gpt", compared(member, *GROUPS))
            if context := stack.enter_context(run):
                runs.append((context, prepared(context, windows_in(shared, context))))
        fit_together(runs)
    return [member.folder("logs") / "gpt" for member in members]


def members_of(config: SeedsConfig) -> list[Config]:
    """Configuration of the run of each seed, whose evaluations take turns."""
    plain = {key: value for key, value in config if key in Config.model_fields}
    plain["evals"] = replace(config.evals, async_eval=False)
    return [Config.model_validate(plain | {"seed": seed, "name": f"{config.name}-seed{seed}"}) for seed in config.seeds]


def windows_in(shared: dict[str, Mixture], context: RunContext) -> Mixture:
    """Windows of a run, those in `shared` if another run has the same ones."""
    data = context.config.data.model_dump()
    key = digest({"stores": context.description["histories"], "data": data, "tasks": context.tasks})
    if key not in shared:
        shared[key] = context.windows(context.config.objective)
    return shared[key]
