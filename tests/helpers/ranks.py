"""Programs for the processes that `in_ranks` starts: each is called with what is given to it in all of them."""

import os
import signal
import socket
from pathlib import Path
from typing import Any

import torch
from toy import CPU

from icrl.runs.distributed import process_group


def told(number: int) -> dict[str, Any]:
    """What rank 0 learns of both ranks, and the addresses that this process listens at in the meantime."""
    with process_group().joined(CPU) as (ranks, _):
        own = torch.tensor([os.getpid(), ranks.rank, ranks.size, number])
        flags, numbers = torch.tensor([[ranks.is_writer, True]]), torch.tensor([[0.5 + ranks.rank]])
        return {
            "gathered": [one.tolist() for one in ranks.gather(own)],
            "flags": ranks.concatenated(flags, 0),
            "numbers": ranks.concatenated(numbers, 1),
            "any": [ranks.any(bool(ranks.rank)), ranks.any(False)],
            "addresses": listened_at(),
        }


def listened_at() -> set[str]:
    """Addresses at which this process listens for connections (Linux), in hexadecimal numbers."""
    links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if os.path.lexists(path)]
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    listening = {f"socket:[{row[9]}]": row[1].partition(":")[0] for row in rows if row[3] == "0A"}
    return {listening[link] for link in links if link in listening}


def broken(how: str) -> None:
    """The other process raises an exception or dies, before it joins or while rank 0 waits for it."""
    what, _, when = how.partition(" ")
    is_other = signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def end() -> None:
        if what == "raises":
            raise ValueError("mine")
        os.kill(os.getpid(), signal.SIGKILL)

    if is_other and when == "early":
        end()
    with process_group().joined(CPU) as (ranks, _):
        if is_other:
            end()
        ranks.any(True)


def address(host: str) -> str:
    """`host` as `listened_at` writes it."""
    return socket.inet_aton(host)[::-1].hex().upper()
