#!/usr/bin/env bash
# A labelled folder today, unlabelled folders every week: the life of a model, on digits.
#
# Run it from a clone after `make demo` or `make test` (either sets up .venv); takes a minute or two.
# With photographs, drop `--backbone digits-vit`: the default is DINO ViT-B/16.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
work="${1:-runs/weekly}"
rm -rf "$work"
mkdir -p "$work"

# Digits as PNG files: 0-3 with labels, then two weeks of unlabelled files with new digits in them.
python - "$work" <<'PYTHON'
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

digits, work = load_digits(), Path(sys.argv[1])


def write(folder, label, first, last, labelled=False):
    place = work / folder / (str(label) if labelled else "")
    place.mkdir(parents=True, exist_ok=True)
    for index in np.flatnonzero(digits.target == label)[first:last]:
        pixels = np.rint(digits.images[index] * 255 / 16).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"scan-{index:04d}.png")


for label in range(4):
    write("labelled", label, 0, 100, labelled=True)
    write("week-1", label, 100, 115)
    write("week-2", label, 115, 130)
for label in (4, 5):
    write("week-1", label, 0, 100)
    write("week-2", label, 100, 115)
for label in (6, 7):
    write("week-2", label, 0, 100)
write("few", 5, 0, 5, labelled=True)
(work / "week-1" / "notes.txt").write_text("not an image: skipped, and listed as such\n")
PYTHON

model="$work/model"
goal fit "$work/labelled" --model "$model" --backbone digits-vit

goal discover "$work/week-1" --model "$model"             # the number of new classes is estimated
goal rename new-1 "first find" --model "$model"
goal teach "$work/few" --model "$model"                   # five images named by hand find the others
goal history --model "$model"                             # every action, with its number

goal discover "$work/week-2" --model "$model" --new 3     # or given: here one too many,
goal merge $(goal classes --model "$model" --plain | tail -n 2) --model "$model"
goal classes --model "$model"                             # which a merge puts right

goal predict "$work/week-2" --model "$model" --out "$work/predictions.csv"
head -n 4 "$work/predictions.csv"

goal undo --model "$model"                                # the merge,
goal undo --model "$model"                                # then week 2: back to the end of week 1
goal predict "$work"/week-1/scan-000*.png --model "$model"
goal export --model "$model" --onnx "$work/model.onnx"
goal show --model "$model"
