"""Progress for a log file: a line now and then, where there is no terminal for a bar."""

import time
from collections.abc import Callable
from datetime import timedelta

_PAUSE = 30.0  # seconds between lines, at least


class PlainProgress:
    """Tells step, loss, samples per second (of this process's own steps) and the time left."""

    def __init__(self, steps: int, batch: int, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic):
        self.steps, self.batch, self.tell, self.clock = steps, batch, tell, clock
        self.done, self.began = 0, clock()
        self.told = self.began

    def __call__(self, step: int, loss: float) -> None:
        """After every step."""
        self.done += 1
        now = self.clock()
        if now - self.told < _PAUSE:
            return
        self.told = now
        each = (now - self.began) / self.done
        left = timedelta(seconds=round(each * (self.steps - step)))
        self.tell(f"step {step} of {self.steps}: loss {loss:.3f}, {self.batch / each:.1f} samples/s, {left} left")
