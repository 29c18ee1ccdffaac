#!/usr/bin/env bash
# How large a served model is: the small Transformer of train-liu-small.sh on Multi30k, exported to CTranslate2.
#
#   recipes/measure-served-size.sh ROW           # rows, hardware, time: tables/served-sizes.json
#
# Corpus     prepare-multi30k.sh
# Expected   measured: RESULTS.md
# Check      the last line: megabytes (10^6 bytes) of the engine's model.bin
#
# A size does not depend on how long the model was trained, so that one update is enough.
#
# SMOKE, DRY_RUN, RUNS, PLUGIN: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/liu.sh"

need_row ROW "$@"
case $1 in
    untied) sharing=() ;;
    wt) sharing=(--share-decoder-input-output-embed) ;;
    twwt) sharing=(--share-all-embeddings) ;;
esac
WORK=${WORK:-$RUNS/multi30k$of_work}
folder=$WORK/served-size-$1 UPDATES=1

need python
[[ $DRY_RUN ]] || python -c 'import ctranslate2' 2>/dev/null ||
    stop "needs the package ctranslate2; got a Python without it. Use pip install ctranslate2."
prepared prepare-multi30k.sh
run rm -rf "$folder"
train_small "$folder" 128 2e-3 --arch tied_transformer --disable-validation
sizes=()
megabytes() {
    python -c 'import os, sys; print(os.path.getsize(sys.argv[1]) / 1e6)' "$1"
}
for quantization in float32 int8; do
    run_tiedemb export "$folder/checkpoint_last.pt" "$folder/$quantization" --to ctranslate2 --quantization "$quantization" \
        --data "$WORK/bin"
    [[ $DRY_RUN ]] || sizes+=("$quantization=$(megabytes "$folder/$quantization/model.bin")")
done
[[ -z $DRY_RUN ]] || exit 0
echo "$1: ${sizes[*]} MB"
SEED='' record served-sizes "$1" --figure "${sizes[@]}"
