#!/bin/sh
# The wheel alone, in an empty environment away from the source tree, runs `goal demo`.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$BIN/python" -m build --quiet --wheel --outdir "$scratch/dist" .
constraints=$(pwd)/constraints.txt
cd "$scratch"
"$PYTHON" -m venv env
env/bin/pip install --quiet --disable-pip-version-check -c "$constraints" dist/*.whl
GOAL_CACHE="$scratch/cache" env/bin/goal demo --out "$scratch/demo"
test -s "$scratch/demo/report.html"
echo "The wheel runs on its own."
