"""Run the benchmark, or what is left of it, and write its page.

    python -m benchmarks.cifar100 [--full] --data-root DATA --backbone RESNET50 --out DIR

Run again, it goes on where it stopped; several processes may work on different seeds at a time.
"""

from cyclopts import App

from benchmarks.cifar100.benchmarks import FULL, SMALL
from benchmarks.paper.running import Request, run_benchmark

app = App(help=__doc__)


@app.default
def run(asked: Request, *, full: bool = False) -> None:
    """Run the experiments that are not finished yet, then write the page.

    Args:
        asked: What to run, and where things are.
        full: The protocol's own sizes, in place of a quarter of the images and short stages.
    """
    run_benchmark(FULL if full else SMALL, asked)


app()
