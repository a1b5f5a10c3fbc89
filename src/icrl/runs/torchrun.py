"""torchrun for one command of a unit: `python -m icrl.runs.torchrun NUM_PROCESSES RESTARTS PROGRAM KEY=VALUE ...`."""

import sys

from torch.distributed.run import main as torchrun

from icrl.runs.processes import end_with_parent


def main(number: str, restarts: str, *command: str) -> None:
    """Run `command` in `number` processes of this machine, and start all again if one is lost, at most `restarts`
    times. All end with the parent of this process."""
    end_with_parent(1)
    torchrun(["--standalone", "--nproc-per-node", number, "--max-restarts", restarts, "-m", "icrl", *command])


if __name__ == "__main__":
    main(*sys.argv[1:])
