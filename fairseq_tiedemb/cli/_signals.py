"""Signals that end a command: it cleans up, says so in a line, and dies by the signal."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_by_signals() -> Iterator[None]:
    """Turns each of the signals into a KeyboardInterrupt with its number, so that half-written files are removed.

    A signal that is ignored stays so, as with nohup. After the first one the others are ignored: a terminal that closes
    and the shell in it send one each, and the second is not to stop the cleaning up.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in old:
            # Not SIG_IGN: Python prints an error for a signal that came just before.
            signal.signal(each, lambda *_: None)
        raise KeyboardInterrupt(number)

    old = {each: signal.getsignal(each) for each in SIGNALS if signal.getsignal(each) != signal.SIG_IGN}
    for each in old:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each, handler in old.items():
            if signal.getsignal(each) is interrupt:
                signal.signal(each, handler)


def end_by(number: signal.Signals, program: str) -> int:
    """Says which signal ends the program, and ends it so: a script whose command dies by SIGINT stops, too."""
    with suppress(OSError):  # of a terminal that is gone
        print(f"{program}: ended by {number.name}", file=sys.stderr)
        sys.stdout.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number
