"""Point 10: how much of training's processor time the kernel takes."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.speed.steps import our_steps
from benchmarks.speed.subjects import Size, cut, method_in_stage, noise_bank, random_model
from goal.common.process import keep_memory


def shares(size: Size, batch: int, images: int, steps: int) -> tuple[float, float]:
    """Percentage of a step's processor time in the kernel: as Linux does it, and as we do it."""
    method = method_in_stage("goal", cut(random_model(size)), images)
    with TemporaryDirectory() as folder:
        step, _ = our_steps(method, noise_bank(size, images, 4, Path(folder)), batch)

        def share() -> float:
            for _ in range(max(1, steps // 4)):
                step()
            before = os.times()
            for _ in range(steps):
                step()
            after = os.times()
            kernel, user = after.system - before.system, after.user - before.user
            return 100 * kernel / max(kernel + user, 1e-9)

        plain = share()
        keep_memory()
        return plain, share()
