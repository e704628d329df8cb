"""The command line: ``goal COMMAND``. Each command only translates; the work is done elsewhere.

May import: common, storage, data, protocol, backbone, bank, methods, settings, learning, runs,
models, report, verify.
"""

import sys

from cyclopts import App

from goal import __version__
from goal.cli import experiments, images, pictures, tools
from goal.cli.common import console, errors, rank
from goal.common.errors import GoalError

app = App(
    name="goal",
    version=__version__,
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
app.command(images.fit)
app.command(images.discover)
app.command(images.predict)
app.command(images.classes)
app.command(images.rename)
app.command(images.merge)
app.command(images.unmerge)
app.command(images.undo)
app.command(images.redo)
app.command(images.show)
app.command(images.extend_vertices)
app.command(images.export)
app.command(images.suggest_names)
app.command(tools.doctor)

bank_app = App(name="bank", help="Look at the token bank, or delete it.")
bank_app.command(tools.info)
bank_app.command(tools.clear)
app.command(bank_app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors end in a message and an exit code, `--debug` shows the trace.

    Exit codes: 1 for what the user or the system can mend, 70 for a defect of goal, 130 for Ctrl-C.
    """
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        app([word for word in given if word != "--debug"], console=console, error_console=errors)
    except KeyboardInterrupt:
        errors.print("Stopped. Nothing finished is lost; the same command goes on from there.")
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        text, code = _explain(error)
        errors.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(code)


def _explain(error: Exception) -> tuple[str, int]:
    """Return the message and the exit code for an error that ends the command."""
    if isinstance(error, (GoalError, OSError)):
        where = "" if rank() is None else f" on rank {rank()}"
        return f"Error{where}: {error}", 1
    if isinstance(error, MemoryError):
        return "Error: out of memory. Lower training.batch_size or bank.batch_size.", 1
    kind = type(error).__name__
    return f"This is a bug in goal ({kind}: {error}). Run again with --debug and report it.", 70
