"""Histories cut into the shards of a union."""

from itertools import pairwise
from pathlib import Path

from icrl.data.columns import rollout_of
from icrl.data.history_store import MANIFEST, Histories, HistoryWriter, checksum_of, open_histories
from icrl.runs.files import write_json


def union_of(store: Histories, folder: Path, tasks: list[int]) -> Path:
    """Union with the content of `store`: shards in `folder`, each of so many `tasks`."""
    manifest, shards = store.manifest, []
    per_task = len(store.row_tasks) // len(store.tasks["train"])
    cuts = [0]
    for number in tasks:
        cuts.append(cuts[-1] + number)
    for k, (first, end) in enumerate(pairwise(cuts)):
        rows = slice(first * per_task, end * per_task)
        split = store.tasks | {"train": store.tasks["train"][first:end]}
        columns = {name: column[rows].swapaxes(0, 1) for name, column in store.columns.items()}
        num_steps, name = store.columns["obs"].shape[1], f"shard-{k}-of-{len(tasks)}"
        writer = HistoryWriter(folder / name, store.spec, num_steps, split, manifest["rows"], manifest["config"])
        writer.add(rollout_of(store.spec, columns))
        writer.commit()
        writer.finish()
        checksum = checksum_of(open_histories(folder / name).manifest)
        shards.append({"folder": name, "rows": rows.stop - rows.start, "checksum": checksum})
    columns = {name: column | {"sha256": None} for name, column in manifest["columns"].items()}
    write_json(folder / MANIFEST, manifest | {"columns": columns, "shards": shards})
    return folder
