#!/bin/sh
# Long studies on one accelerator, in pieces that end in time; stopped, they resume. From the top of the repository:
#
#     studies/accelerator/run.sh OUT [--scale 0.01] [--only "PIECE PIECE+PIECE"] [--seconds 540] [--workers 14] [--data ../shared/data]
#
# Pieces come one after the other, each with the time that the ones before have left; those joined by + run at once. By
# default papers+student. `python studies/features.py lfw-paper --device cuda` trains there too, and
# so does `sfumato study run` with a study that has `device: auto`, such as studies/lfw-published-named.yaml.
# OUT/PIECE.jsonl has a finished task a line: copy it to studies/results/accelerator-PIECE.jsonl, or see papers.py.
# `--scale 0.01 --workers 1` tries one task of each kind on a processor: 11 of papers in 5 minutes, 2 of student in 3.
# It needs PyTorch, what sfumato itself needs, and no installation of sfumato: PYTHON names an interpreter.
set -u
out= scale=1 only=papers+student seconds=540 workers=14 data=../shared/data
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
for packed in lfw omniglot; do
  "${PYTHON:-python3}" "$here/../unpack.py" $packed "$data" runs/data/$packed &
done
wait
failed=0
for together in $only; do
  left=$((ends - $(date +%s)))
  [ "$left" -gt 10 ] || { echo "$together: no time left" && continue; }
  running=
  for piece in $(echo "$together" | tr + ' '); do
    "${PYTHON:-python3}" "$here/$piece.py" "$out" --data "$data" --scale "$scale" --seconds "$left" --workers "$workers" &
    running="$running $!"
  done
  for process in $running; do wait "$process" || failed=1; done
done
exit $failed
