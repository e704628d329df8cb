"""The command line: ``goal COMMAND``. Each command only translates; the work is done elsewhere.

May import: common, storage, distributed, data, protocol, backbone, bank, features, methods,
settings, learning, runs, models, report, verify, review.
"""

import shlex
import signal
import sys
import threading
from typing import Any

from cyclopts import App

from goal.cli import (
    classes,
    decisions,
    experiments,
    exploring,
    hub,
    images,
    model,
    pictures,
    review,
    tools,
)
from goal.cli.common import console, ending, errors, rank
from goal.common.errors import GoalError

app = App(
    name="goal",
    version=tools.versions,
    version_format="plaintext",
    suppress_keyboard_interrupt=False,
    help="Continual generalized category discovery: learn labelled classes once, then find new "
    "ones in unlabelled images, stage after stage. Start with `goal demo`.",
)
app.command(experiments.demo)
app.command(experiments.run)
app.command(experiments.resume)
app.command(experiments.bench)
app.command(experiments.compare)
app.command(experiments.sweep)
app.command(pictures.report)
app.command(pictures.figures)
app.command(tools.list_, name="list")
app.command(tools.pretrain)
app.command(tools.verify)
app.command(images.embed)
app.command(images.fit)
app.command(images.discover)
app.command(images.predict)
app.command(exploring.search)
app.command(exploring.duplicates)
app.command(exploring.next_, name="next")
app.command(classes.classes)
app.command(classes.rename)
app.command(classes.merge)
app.command(classes.unmerge)
app.command(decisions.move)
app.command(decisions.reject)
app.command(decisions.confirm)
app.command(decisions.split)
app.command(decisions.junk)
app.command(decisions.teach)
app.command(classes.history)
app.command(classes.undo)
app.command(classes.redo)
app.command(classes.show)
app.command(review.review)
app.command(review.serve)
app.command(model.extend_vertices)
app.command(model.export)
app.command(hub.push)
app.command(hub.pull)
app.command(classes.suggest_names)
app.command(tools.doctor)

bank_app = App(name="bank", help="Look at the token bank, or delete it.")
bank_app.command(tools.info)
bank_app.command(tools.clear)
app.command(bank_app)
app.register_install_completion_command(help="Let the shell complete words after `goal`.")


_TERMINATED = "SIGTERM"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors end in a message and an exit code, `--debug` shows the trace.

    Exit codes: 1 for what the user or the system can mend, 2 for words that cannot be read, 70 for
    a defect of goal, 130 for Ctrl-C, 143 for SIGTERM.
    """
    given = sys.argv[1:] if arguments is None else arguments
    words = [word for word in given if word != "--debug"]
    _obey_sigterm()
    try:
        with ending:
            app(words, console=console, error_console=errors)
    except KeyboardInterrupt as stop:
        notes = getattr(stop, "__notes__", [])
        again = notes[0] if notes else shlex.join(["goal", *words])
        errors.print(f"Interrupted. Go on with `{again}`", soft_wrap=True)
        sys.exit(143 if stop.args == (_TERMINATED,) else 130)
    except Exception as error:
        if len(words) < len(given):
            raise
        text, code = _explain(error)
        errors.print(text, style="red", soft_wrap=True)
        sys.exit(code)


def _obey_sigterm() -> None:
    """Let SIGTERM end a command as Ctrl-C does. Ranks of torchrun are ended at once, as ever."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt(_TERMINATED)

    main_thread = threading.current_thread() is threading.main_thread()
    if rank() is None and main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, stop)
        ending.callback(signal.signal, signal.SIGTERM, signal.SIG_DFL)


def _explain(error: Exception) -> tuple[str, int]:
    """Return the message and the exit code for an error that ends the command."""
    if isinstance(error, (GoalError, OSError)):
        where = "" if rank() is None else f" on rank {rank()}"
        return f"Error{where}: {error}", 1
    if isinstance(error, MemoryError):
        return "Error: out of memory. Lower training.batch_size or bank.batch_size.", 1
    kind = type(error).__name__
    return f"This is a bug in goal ({kind}: {error}). Run again with --debug and report it.", 70
