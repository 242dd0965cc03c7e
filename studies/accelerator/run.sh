#!/bin/sh
# Long studies on one accelerator, in pieces that end in time; stopped, they go on. From the top of the repository:
#
#     studies/accelerator/run.sh OUT [--scale 0.01] [--only PIECE] [--seconds 540] [--workers 14] [--data ../shared/data]
#
# Pieces, in the order of their worth: releases, hats, answers; each has what time the ones before have left. By --only:
# named (a quarter of an hour), semsim. `python studies/features.py lfw-paper --device cuda` trains there too. Studies with `device: auto`, such as studies/lfw-published.yaml, run there by `sfumato study
# run`, which goes on where a time limit stopped it.
# OUT/PIECE.jsonl has a finished task a line: copy it to studies/results/accelerator-PIECE.jsonl. `--scale 0.01` tries all of it on a
# processor. It needs PyTorch, what sfumato itself needs, and no installation of sfumato: PYTHON names an interpreter.
set -u
out= scale=1 only="releases hats answers" seconds=540 workers=1 data=../shared/data
while [ $# -gt 0 ]; do
  case $1 in
    --scale) scale=$2 && shift ;;
    --only) only=$2 && shift ;;
    --seconds) seconds=$2 && shift ;;
    --workers) workers=$2 && shift ;;
    --data) data=$2 && shift ;;
    -*) echo "no option $1: $(sed -n 4p "$0")" >&2 && exit 2 ;;
    *) out=$1 ;;
  esac
  shift
done
[ -n "$out" ] || { echo "name a folder: $(sed -n 4p "$0")" >&2 && exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../../src:$here/..${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
ends=$(($(date +%s) + seconds))
failed=0
for piece in $only; do
  left=$((ends - $(date +%s)))
  [ "$left" -gt 10 ] || { echo "$piece: no time left" && continue; }
  "${PYTHON:-python3}" "$here/$piece.py" "$out" --data "$data" --scale "$scale" --seconds "$left" --workers "$workers" || failed=1
done
exit $failed
