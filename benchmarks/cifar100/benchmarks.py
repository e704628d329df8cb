"""CIFAR-100 in two sizes: a quarter of the images and short stages, and as the papers have it."""

from pathlib import Path

from benchmarks.paper.benchmark import Benchmark
from benchmarks.paper.rows import (
    BOUND,
    COUNTED,
    FAIR,
    FIRST,
    FIRST_BOUND,
    FORMS,
    LIKE_HAPPY,
    READINGS,
    alignments,
    alphas,
    happy_ablation,
    methods,
)

_HERE = Path(__file__).parent
_TEN = "protocol.stages=10"
_FULL_METHODS = ("goal-plus", "kmeans", "happy", "goal", "simgcd", "metagcd", "frost", "vb_cgcd")

SMALL = Benchmark(
    dataset="cifar100",
    command="python -m benchmarks.cifar100",
    setting=_HERE / "setting.yaml",
    sizes={"projector_hidden": 256, "projector_out": 128},
    own={
        "simgcd": {"method": {"entropy_weight": 4.0}},
        "simgcd_plus": {"method": {"entropy_weight": 4.0}},
        "metagcd": {"training": {"stage_lr": 1e-4}},
    },
    parts={
        "five-stages": (*methods(), *FORMS, FAIR, COUNTED, BOUND, FIRST, FIRST_BOUND),
        "ten-stages": (
            *(
                row.but(_TEN)
                for row in (
                    *methods(("goal-plus", "vb_cgcd", "dydm", "goal", "happy", "metagcd")),
                    # Ten counts that err upwards can need more vertices than the narrow projector
                    # has room for.
                    COUNTED.but("method.projector_out=256"),
                    BOUND,
                    FIRST,
                )
            ),
        ),
        "alignment": alignments(),
        "alpha": alphas((0.1, 0.3, 0.5, 0.7, 0.9)),
        "happy-ablation": happy_ablation(),
    },
    about="""# CIFAR-100, reproduced as far as one CPU goes

Made by `python -m benchmarks.cifar100`; do not edit. The images are real, the setting is small: a
quarter of the protocol's images (100 labelled per base class, 100 per new class, 6 per known class
and stage), the whole test set, 128 pixels, a narrow tail, 20 epochs per stage
([setting.yaml](setting.yaml)). **The backbone is a ResNet-50 trained with ImageNet labels**, so no
figure here compares with those of papers, which use DINO ViT-B/16: the published column is for
orientation, and no row is verified, for want of that backbone and of the full size. What does
compare is one method with another: all have the same features, images, stages, epochs and seeds.
""",
)

FULL = Benchmark(
    dataset="cifar100",
    command="python -m benchmarks.cifar100 --full",
    setting=_HERE / "full" / "setting.yaml",
    sizes={"projector_hidden": 512, "projector_out": 256},
    own={
        "simgcd": {"method": {"entropy_weight": 4.0}},
        "metagcd": {"training": {"stage_epochs": 20, "stage_lr": 1e-4}},
    },
    parts={
        "five-stages": (*methods((*_FULL_METHODS, "dydm", "freeze_and_cluster")), FAIR, BOUND),
        "alignment": alignments(),
        "alignment-1": alignments("method.distillation_weight=1"),
        "equal-start": alignments(*LIKE_HAPPY),
        "alpha": alphas((0.3, 0.5, 0.7)),
        "readings": READINGS,
    },
    about="""# CIFAR-100 at full size

Made by `python -m benchmarks.cifar100 --full`; do not edit. The protocol's own sizes: 400 labelled
images per base class, 400 per new class, 25 per known class and stage, the whole test set; 100
epochs of stage 0 and 30 of each later stage, batches of 128, the published rates, four banked views
([setting.yaml](setting.yaml)). What is not the papers': 128 pixels, a narrow block added to the
network in place of its last one, a narrower projector (512 and 256), and **a ResNet-50 trained with
ImageNet labels** in place of DINO ViT-B/16. So the published column is for orientation, and no row
is verified. What does compare is one method with another.
""",
)
