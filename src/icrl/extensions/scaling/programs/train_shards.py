"""Stage one in shards, for `train_agents.py`: commands that collect one shard each, and their union."""

from collections.abc import Sequence
from contextlib import closing

from icrl.collection.shards import check_shards, shard_of, unite
from icrl.collection.source_run import compared, inputs_of
from icrl.config.options import refuse
from icrl.config.root import Config
from icrl.contracts import Json, PipelineError
from icrl.data.history_store import MANIFEST
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.programs.export_histories import export_all
from icrl.runs.checkpoint import FINISHED
from icrl.runs.device import device_of
from icrl.runs.files import Identity, identity_of, only_writer, read_json, read_owned, write_owned
from icrl.runs.launch import run_jobs
from icrl.runs.units import Job
from icrl.sources.pace import num_iterations

FOUND = {"num_tasks": int, "unsolved": [{"task": (str, int), "success": [float]}]}


def collect_shards(config: Config, options: Sequence[str]) -> Json:
    """Run the shards that are not finished with the engine of `launch`, and unite them; returns the results of all
    agents. `options` are the command line. Raises `PipelineError` if a shard fails."""
    with closing(make_env(config.env)) as env:
        split = split_tasks(env, config)
    check_shards(config, len(split.train))
    processes = f"launch.num_processes={config.launch.num_processes}: a shard is collected by one process"
    refuse(config.launch.num_processes > 1, f"{processes}; give shard.count and launch.num_workers instead")
    histories, folder = config.folder("histories"), config.folder("logs") / "source"
    parts = [shard_of(config, index) for index in range(config.shard.count)]
    ends = [part.folder("logs") / "source" / FINISHED for part in parts]
    done = [end.exists() and read_owned(end, FOUND)[1] == owner_of(part) for part, end in zip(parts, ends, strict=True)]
    given = [option for option in options if option.lstrip("+").partition("=")[0].partition(".")[0] != "launch"]
    given += [f"seed={config.seed}", f"num_threads={config.num_threads or 1}"]
    jobs = [
        Job(part.folder("logs").name, [["train_agents", *given, f"shard.index={index}"]], "", 1)
        for index, part in enumerate(parts)
        if not done[index]
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with only_writer(histories):
        whole = (histories / MANIFEST).exists() and "shards" not in read_json(histories / MANIFEST)
        refuse(whole, f"{histories} was collected without shards: leave shard.count out, or give another name=")
        if failed := run_jobs(jobs, config.launch, folder, "shards"):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise PipelineError(f"{len(failed)} of {len(parts)} shards failed; the same command goes on: {reasons}")
        results = [read_owned(end, FOUND)[0] for end in ends]
        found: Json = {"num_tasks": sum(result["num_tasks"] for result in results)}
        found["unsolved"] = [task for result in results for task in result["unsolved"]]
        if all("return" in result for result in results):
            found["return"] = sum(result["return"] * result["num_tasks"] for result in results) / found["num_tasks"]
        unite(histories, [part.folder("histories") for part in parts], split.train, owner_of(config))
        write_owned(folder / FINISHED, owner_of(config), num_iterations(config.source), found)
    export_all(config)
    return found


def owner_of(config: Config) -> Identity:
    """Identity of the run of stage one, or of its shard."""
    return identity_of("train_agents", config, compared(config), inputs_of(config, device_of(config)))
