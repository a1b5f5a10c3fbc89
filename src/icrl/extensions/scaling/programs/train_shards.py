"""Stage one in shards: train source agents as `train_agents` does, in blocks of training tasks, each on its own.

python -m src.train_shards shard.count=8 [KEY=VALUE ...]      -> histories/<name>/, logs/<name>/source/

All shards are collected as processes of this machine (launch.num_workers at a time), or with launch=dask or
launch=submitit elsewhere; shard.index=3 collects one of them. Histories in shards read as one store, with the rows of a
run without shards. The same command continues with what is missing.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from icrl.app.root import Config
from icrl.config.options import refuse, replace
from icrl.contracts import Json, PipelineError
from icrl.data.history_store import MANIFEST, store_kind
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.extensions.scaling.launch import run_jobs
from icrl.extensions.scaling.options import ShardedConfig
from icrl.extensions.scaling.unions import unite
from icrl.extensions.scaling.units import Job
from icrl.programs.train_agents import print_results, record_before
from icrl.recording.record import FOUND, WHOLE, Part, compared, examined, inputs_of, record_part
from icrl.runs.checkpoint import FINISHED
from icrl.runs.files import Identity, identity_of, only_writer, read_json, read_owned, write_owned
from icrl.sources import source_class
from icrl.sources.options import NetworkConfig, num_iterations

OPTIONS = ShardedConfig
LARGE = "source.num_learners, source.num_envs, source.unroll_length"


def start(config: ShardedConfig, options: Sequence[str]) -> Path:
    """Collect all shards and unite them, or collect one; returns the folder with the histories. `options` are the
    command line of `config`, which each shard gets."""
    with closing(make_env(config.env)) as env:
        source_class(config.source.name).check_spaces(config.source.name, env.spec)
        train = split_tasks(env, config).train
    check_shards(config, len(train))
    plain = Config.model_validate({name: value for name, value in config if name in Config.model_fields})
    if config.shard.index < 0:
        record_before(plain)
        found = collect(config, plain, train, options)
    else:
        before = plain.source.run_before(plain)  # shards that start together find it trained
        if before and not (before.folder("logs") / "source" / FINISHED).exists():
            record_before(plain)
        plain = shard_of(plain, config.shard.part)
        record_part(plain, config.shard.part)
        found = examined(plain, config.shard.part)
    print_results(plain, found)
    return plain.folder("histories")


def check_shards(config: ShardedConfig, num_tasks: int) -> None:
    """Raise `ConfigError` if shards of `num_tasks` training tasks cannot have the rows of a run of all tasks."""
    source, count = config.source, config.shard.count
    given, of_all = f"shard.count={count}", "collect them with train_agents"
    refuse(source.shared, f"{given}: source.shared=true is one learner of all tasks, which cannot be split; {of_all}")
    most = num_tasks
    if isinstance(source, NetworkConfig) and source.num_learners == 1:
        most //= 2  # products of a single learner are rounded in another way
    alone = f"gives a shard fewer than {num_tasks // most} of the {num_tasks} training tasks" if most else "is too many"
    cure = f"give shard.count={most}, or more tasks or learners" if most > 1 else f"give more tasks, or {of_all}"
    refuse(count > most, f"{given} {alone}: {cure}")


def collect(config: ShardedConfig, plain: Config, train: list[int], options: Sequence[str]) -> Json:
    """Run the shards that are not finished with the engine of `launch`, and unite them; returns the results of all
    agents, of the training tasks `train`. `plain`: the options of the run alone. Raises `PipelineError` if a shard
    fails."""
    processes = f"launch.num_processes={config.launch.num_processes}: a shard is collected by one process"
    refuse(config.launch.num_processes > 1, f"{processes}; give shard.count and launch.num_workers instead")
    histories, folder = plain.folder("histories"), plain.folder("logs") / "source"
    parts = [Part(index, config.shard.count) for index in range(config.shard.count)]
    shards = [shard_of(plain, part) for part in parts]
    ends = [shard.folder("logs") / "source" / FINISHED for shard in shards]
    owners = [owner_of(shard, part) for shard, part in zip(shards, parts, strict=True)]
    done = [end.exists() and read_owned(end, FOUND)[1] == owner for end, owner in zip(ends, owners, strict=True)]
    given = [option for option in options if option.lstrip("+").partition("=")[0].partition(".")[0] != "launch"]
    given += [f"seed={config.seed}", f"num_threads={config.num_threads or 1}"]
    jobs = [
        Job(shard.folder("logs").name, [["train_shards", *given, f"shard.index={index}"]], "", 1)
        for index, shard in enumerate(shards)
        if not done[index]
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with only_writer(histories):
        whole = (histories / MANIFEST).exists() and not store_kind(read_json(histories / MANIFEST))
        refuse(whole, f"{histories} was collected without shards: use train_agents, or give another name=")
        if failed := run_jobs(jobs, config.launch, folder, "shards"):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise PipelineError(
                f"{len(failed)} of {len(parts)} shards failed; the same command retries them: {reasons}"
            )
        results = [read_owned(end, FOUND)[0] for end in ends]
        found: Json = {"num_tasks": sum(result["num_tasks"] for result in results)}
        found["unsolved"] = [task for result in results for task in result["unsolved"]]
        if all("return" in result for result in results):
            found["return"] = sum(result["return"] * result["num_tasks"] for result in results) / found["num_tasks"]
        unite(histories, [shard.folder("histories") for shard in shards], train, owner_of(plain))
        write_owned(folder / FINISHED, owner_of(plain), num_iterations(config.source), found)
    return found


def shard_of(plain: Config, part: Part) -> Config:
    """Configuration of the run of a shard: it has folders of its own in those of the run."""
    return replace(plain, name=f"{plain.name}/shard-{part.index}-of-{part.count}")


def owner_of(config: Config, part: Part = WHOLE) -> Identity:
    """Identity of the run of stage one, or of its shard."""
    return identity_of("train_agents", config, compared(config), inputs_of(config, part))
