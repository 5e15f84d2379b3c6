"""Functions that units of the tests call in processes of their own; light to import."""

from __future__ import annotations

import os
import signal
import time

from beliefspace.core.errors import Interrupted, InvalidInput, NoSpace
from beliefspace.core.registry import resolve

PATIENCE = 60.0  # seconds until a test that hangs is called failed


def write(config, out, report):
    """Log start and end, and keep the process id and what the process was given."""
    out.mkdir()
    log(config["log"], f"start {out.name}")
    (out / "pid").write_text(str(os.getpid()))
    (out / "threads").write_text(" ".join(os.environ[name] for name in config.get("variables", ())))
    log(config["log"], f"end {out.name}")


def tell(config, out, report):
    """Report messages, the last of them larger than a pipe."""
    for number in range(3):
        report({"number": number})
    report({"text": "x" * 200_000})


def meet(config, out, report):
    """Wait for another unit, which must be running at the same time."""
    log(config["log"], f"start {out.name}")
    (out.parent / f"{out.name}-is-here").touch()
    wait_for(lambda: (out.parent / f"{config['other']}-is-here").exists())
    log(config["log"], f"end {out.name}")


def refuse(config, out, report):
    raise InvalidInput("one clear line")


def crash(config, out, report):
    return 1 / config["zero"]


def kill_itself(config, out, report):
    os.kill(os.getpid(), signal.SIGKILL)


def leave(config, out, report):
    os._exit(3)


def count(config, out, report):
    """Count to ten, from where it was left; on SIGTERM keep the count and stop.

    The first time it counts to three and waits to be told to stop.
    """
    out.mkdir(exist_ok=True)
    received = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: received.append(signal.Signals(number).name))
    kept = out / "kept"
    reached, target = (int(kept.read_text()), 10) if kept.exists() else (0, 3)
    while reached < target:
        reached += 1
        report({"reached": reached})
    if target == 10:
        (out / "done").write_text(str(reached))
        return
    report({"ready": True})
    wait_for(lambda: received)
    # Whoever listened may be gone: the work must be kept, and a full pipe not waited for.
    report({"text": "x" * 200_000})
    kept.write_text(str(reached))
    (out / "received").write_text(" ".join(received))
    if config.get("full"):
        raise NoSpace("the disk is full")
    raise Interrupted("stopped")


def wait(config, out, report):
    """Wait without a handler: SIGTERM ends the process."""
    report({"ready": True})
    time.sleep(PATIENCE)


def look_up(config, out, report):
    """Report the class that a name stands for."""
    report({"found": resolve("optimizers", config["name"]).__name__})


def log(file, line):
    with open(file, "a") as lines:
        lines.write(line + "\n")


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("waited in vain")
        time.sleep(0.01)
