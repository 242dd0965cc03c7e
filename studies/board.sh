#!/bin/sh
# The board: our rows, published ones (pip install studies/rivals) and planted ones, whose marks must show. Stopped, it goes on;
# `sfumato study board studies/results/board.jsonl` prints the table. board-lfw needs studies/unpack.py lfw.
set -e
row() { # NAME STUDY OPTIONS...
  name=$1 && shift
  sfumato study run "$@" --out "runs/$name" --yes
  python -c "from pathlib import Path; from sfumato.study import records; records.pack(Path('runs/$name'), Path('studies/results/$name.jsonl'))"
}
set -- blur:radius=2 blur:radius=1 pixelize:cell=2,4,8 gaussian:sigma=60 dp-pix:cell=8,epsilon=3,0.5 block:share=0.5 \
  centre-blur:radius=3,share=0.5 planted:way=scramble,carry dct:way=whole,part,shuffle linear-removal k-same:k=5 no-peek:weight=1 \
  cloak:levels=16 deface code:bits=5,16 answer feature:dimension=16,noise=0.3 mask:keep=0.1
for spec; do set -- "$@" --protection "$spec" && shift; done
row board board "$@"
row board-weak board --set data.images_per_identity=4 --set data.further=0 --protection blur:radius=2
row board-undone board --set "attacks=[reidentify-static, reidentify-adaptive, reidentify-values, reidentify-sorted, gram]" \
  --protection dct:way=shuffle
row board-lfw studies/board-lfw.yaml --protection deface
