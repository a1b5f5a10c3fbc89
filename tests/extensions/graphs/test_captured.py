"""Work that is repeated; on a GPU, where it is one graph, it is tested in `tests/test_gpu.py`."""

import torch

from icrl.config.modules import load_plugins
from icrl.extensions.graphs.captured import Captured
from icrl.runs.device import REPEATED


def test_on_a_cpu_the_function_is_called_every_time() -> None:
    load_plugins()
    calls = list[int]()
    repeated = REPEATED[-1](lambda x: [x + len(calls), calls.append(len(calls)) or x])
    assert isinstance(repeated, Captured)
    assert [repeated(torch.zeros(1))[0].item() for _ in range(3)] == [0.0, 1.0, 2.0]
