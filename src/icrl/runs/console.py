"""Standard output and error that are closed, not UTF-8, or read by nobody any more."""

import os
import select
import sys
from contextlib import suppress
from io import TextIOWrapper


def open_outputs() -> None:
    """Let what goes to a closed output go nowhere, instead of into the file that is opened next, and write characters
    that an output's encoding does not have as escapes."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:  # so Python says that it was closed
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:
                os.fstat(number)
            except OSError:
                os.dup2(nowhere, number)
            setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8"))
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def close_outputs() -> bool:
    """Write out what is still held back; returns whether the reader of an output is gone. What cannot be written is
    dropped, so that the interpreter's own end is quiet."""
    gone = False
    for stream in (sys.stdout, sys.stderr):
        refused = False
        try:
            stream.flush()
        except OSError:
            refused = True
        with suppress(OSError):  # what is no file has no reader
            unread = _is_unread(stream.fileno())
            gone |= unread
            if refused or unread:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return gone


def _is_unread(number: int) -> bool:
    """Whether this file descriptor is a pipe or a terminal whose other end is closed."""
    poll = select.poll()
    poll.register(number, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
