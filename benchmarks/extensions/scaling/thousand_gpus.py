"""What a run on 1 000 GPUs with 1e12 transitions needs, from the unit costs that `unit_costs` measured.

python -m benchmarks.extensions.scaling.thousand_gpus      -> results/scale/thousand_gpus.json

`Cluster` (in `cluster_simulation`) and `Training` are assumptions. Costs come from `results/scale/unit_costs.json`.
"""

import statistics
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from benchmarks.extensions.scaling.cluster_simulation import (
    HOUR,
    Cluster,
    Load,
    Steps,
    any_node,
    random_failures,
    stage_one,
    stage_two,
)
from benchmarks.measure import RESULTS
from icrl.contracts import Json
from icrl.runs.files import read_json, write_json

FOLDER = RESULTS / "scale"
TRANSITIONS, PARTS, SEEDS = 1e12, 10, range(5)
SLOW = "a simulator of 1 000 steps/s (assumed)"
WORLDS = {"dark_room": "DarkRoom, A2C (measured)", "cart_pole": "cart pole, PPO (measured)"}
SHARDS = (1000, 8000, 32_000)
NUM_GPUS = Cluster().num_nodes * Cluster().gpus_per_node


@dataclass(frozen=True)
class Training:
    """Model and batches of stage two, as assumed."""

    parameters: float = 1e9
    steps_in_window: int = 1024
    windows_per_gpu: int = 4  # of an update
    accumulation: int = 1  # such batches one after the other, before gradients are exchanged


class Update(NamedTuple):
    """Seconds of an update, and what it consists of."""

    compute: float
    exchange: float  # of gradients in float32, ring all-reduce
    total: float
    updates: int


def update_of(training: Training, cluster: Cluster, num_gpus: int) -> Update:
    """6 operations for each parameter and step, two thirds of them backward; the exchange begins with the backward pass
    of the last part, and is hidden as long as that takes."""
    steps = training.windows_per_gpu * training.steps_in_window
    part = 6 * training.parameters * steps / cluster.flops
    exchange = 2 * 4 * training.parameters / cluster.network
    total = training.accumulation * part + max(0.0, exchange - part * 2 / 3)
    updates = round(TRANSITIONS / (steps * training.accumulation * num_gpus))
    return Update(training.accumulation * part, exchange, total, updates)


def tables() -> dict[str, list[list[str]]]:
    """All tables, with their heads, from the costs that were measured."""
    measured = read_json(FOLDER / "unit_costs.json")
    costs: Json = measured["histories"]["costs"] | {
        name: measured[name]["costs"] for name in ("stage_one", "checkpoint", "engine")
    }
    cluster = Cluster()
    return {
        "thousand_gpus_costs": _costs(costs),
        "thousand_gpus_limits": _limits(costs, cluster),
        "thousand_gpus_collection": _collection(costs, cluster),
        "thousand_gpus_training": _training(costs, cluster),
    }


def _costs(costs: Json) -> list[list[str]]:
    rates, saved, engine = costs["stage_one"], costs["checkpoint"], costs["engine"]
    size, check = costs["bytes_per_transition"], costs["seconds_per_byte_checked"]
    opened, of_task = costs["seconds_per_shard_opened"], costs["seconds_per_shard_and_task_opened"]
    shards = SHARDS[1]
    hours = {name: TRANSITIONS / rate / HOUR for name, rate in rates.items()}
    writing, window = costs["seconds_per_transition_written"], costs["seconds_per_window_read"]
    return [
        ["one", "measured", "1e12 transitions, 8 000 shards, 1e9 parameters"],
        ["transition in the store", f"{size:.0f} bytes", f"{size * TRANSITIONS / 1e12:.0f} TB"],
        *(
            [
                f"env step of {WORLDS[name]}, update included",
                f"{rates[name]:,.0f} a second and core",
                _hours(hours[name]),
            ]
            for name in rates
        ),
        ["transition written", f"{writing * 1e9:.0f} ns of a core", _hours(writing * TRANSITIONS / HOUR)],
        ["byte checked", f"{1 / check / 1e9:.2f} GB/s of a core", _hours(check * size * TRANSITIONS / HOUR)],
        [
            "shard opened, without its checksums",
            f"{opened * 1e3:.1f} ms, and {of_task * 1e6:.1f} us for each task of the world",
            f"{shards * (opened + of_task * shards):,.0f} s of each process, with 8 000 tasks",
        ],
        [
            f"window of {costs['steps_in_window']} steps read from disk",
            f"{window * 1e6:.0f} us of a core (pages in memory)",
            f"{1 / window:,.0f} windows a second of each process",
        ],
        [
            "checkpoint",
            f"{saved['bytes_per_parameter']:.1f} bytes and {saved['seconds_per_parameter'] * 1e9:.1f} ns a parameter",
            f"{saved['bytes_per_parameter']:.0f} GB, {saved['seconds_per_parameter'] * 1e9:.0f} s",
        ],
        [
            "unit handed out by Dask",
            f"{engine['seconds_per_unit'] * 1e3:.1f} ms of the launching process",
            f"{engine['seconds_per_unit'] * shards:,.0f} s",
        ],
        ["start of a unit's program", f"{engine['seconds_of_start']:.1f} s of a core", ""],
    ]


def _limits(costs: Json, cluster: Cluster) -> list[list[str]]:
    """What grows, and where it ends."""
    shards, update = SHARDS[1], update_of(Training(), cluster, NUM_GPUS)
    size, check = costs["bytes_per_transition"] * TRANSITIONS, costs["seconds_per_byte_checked"]
    once = max(size / cluster.bandwidth, size * check / cluster.workers_per_node)
    return [
        ["what grows", "at this size", "limit"],
        [f"memory maps of a process, {shards:,} shards", f"{shards * costs['columns']:,}", f"{cluster.maps:,}"],
        [
            "all ranks check all files",
            f"{NUM_GPUS * size / cluster.bandwidth / HOUR:,.1f} h of the file system",
            f"once: {once:,.0f} s with {cluster.workers_per_node} threads",
        ],
        [
            "gradients exchanged in an update",
            f"{update.exchange * 1e3:.0f} ms",
            f"{update.compute * 1e3:.0f} ms of arithmetic",
        ],
    ]


def _collection(costs: Json, cluster: Cluster) -> list[list[str]]:
    lines = [["world", "shards", "time", "at best"]]
    rates = {WORLDS[name]: rate for name, rate in costs["stage_one"].items()} | {SLOW: 1000.0}
    engine, workers = costs["engine"], cluster.num_nodes * cluster.workers_per_node
    for (world, rate), shards in product(rates.items(), SHARDS):
        each = TRANSITIONS / shards / PARTS
        seconds = each * (1 / rate + costs["seconds_per_transition_written"])
        size = each * costs["bytes_per_transition"]
        load = Load(shards, PARTS, seconds, size, engine["seconds_of_start"], engine["seconds_per_unit"])
        found = [stage_one(load, cluster, random_failures(cluster, seed)) for seed in SEEDS]
        best = shards * PARTS * seconds / workers
        lines.append([world, f"{shards:,}", _time(statistics.mean(found)), _time(best)])
    return lines


def _training(costs: Json, cluster: Cluster) -> list[list[str]]:
    lines = [["parts of an update", "GPU hours between failures", "checkpoint each", "time", "at best"]]
    saved, engine = costs["checkpoint"], costs["engine"]
    save = Training().parameters * saved["seconds_per_parameter"]
    opened = SHARDS[1] * (costs["seconds_per_shard_opened"] + costs["seconds_per_shard_and_task_opened"] * SHARDS[1])
    start = engine["seconds_of_start"] + opened + save
    for accumulation, between, interval in product((1, 8), (50_000.0, 5_000.0), (300.0, 1800.0)):
        update = update_of(Training(accumulation=accumulation), cluster, NUM_GPUS)
        there = Cluster(gpu_hours_between_failures=between)
        steps = Steps(update.updates, update.total, interval, save, start)
        found = [stage_two(steps, any_node(there, seed), there.repair) for seed in SEEDS]
        times = (interval, statistics.mean(found), update.updates * update.compute)
        lines.append([f"{accumulation}", f"{between:,.0f}", *map(_time, times)])
    return lines


def _hours(hours: float) -> str:
    return f"{hours:,.0f} core hours" if hours >= 10 else f"{hours:,.1f} core hours"


def _time(seconds: float) -> str:
    units = ((48 * HOUR, 24 * HOUR, "days"), (5400.0, HOUR, "h"), (90.0, 60.0, "min"), (0.0, 1.0, "s"))
    size, unit = next((size, unit) for least, size, unit in units if seconds >= least)
    return f"{seconds / size:.3g} {unit}"


def table(name: str) -> str:
    """Markdown of a table that was kept, with the origin of its costs."""
    head, *lines = read_json(FOLDER / "thousand_gpus.json")["tables"][name]
    about = [part["about"] for part in read_json(FOLDER / "unit_costs.json").values()]
    dates, commits, machines = (", ".join(sorted({one[key] for one in about})) for key in ("date", "commit", "machine"))
    here = "python -m benchmarks.extensions.scaling"
    origin = f"(`{here}.thousand_gpus`; costs: `{here}.unit_costs`, {dates}, {commits}, "
    written = [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines)]
    return "\n".join([*written, "", f"{origin}{machines})"])


TABLES = ("thousand_gpus_costs", "thousand_gpus_limits", "thousand_gpus_collection", "thousand_gpus_training")


def main() -> None:
    found = tables()
    write_json(FOLDER / "thousand_gpus.json", {"seeds": [*SEEDS], "tables": found})
    for name in found:
        print(f"\n{table(name)}")
    print("\npython -m benchmarks.extensions.studies.learning --tables writes them into docs/thousand_gpus.md")


if __name__ == "__main__":
    main()
