"""A worker ends with its parent. It imports next to nothing, so that this holds from the worker's first moments on."""

import multiprocessing
import os
import signal
import threading


def follow_parent() -> None:
    """A worker leaves interruptions to its parent, and ends when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
