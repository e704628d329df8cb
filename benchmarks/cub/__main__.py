"""Run the benchmark, or what is left of it, and write its page.

    python -m benchmarks.cub --data-root DATA --backbone RESNET50 --out DIR

Run again, it goes on where it stopped; several processes may work on different seeds at a time.
The part ``last-block`` takes hours per row and seed, all others minutes.
"""

from cyclopts import App

from benchmarks.cub.benchmarks import FULL
from benchmarks.paper.running import Request, run_benchmark

app = App(help=__doc__)


@app.default
def run(asked: Request) -> None:
    """Run the experiments that are not finished yet, then write the page.

    Args:
        asked: What to run, and where things are.
    """
    run_benchmark(FULL, asked)


app()
