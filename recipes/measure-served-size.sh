#!/usr/bin/env bash
# How large a served model is: the small Transformer of train-liu-small.sh on Multi30k, exported to CTranslate2.
#
#   recipes/measure-served-size.sh ROW
#
#   ROW     what is shared                             flag
#   untied  nothing                                    none
#   wt      input and output of the decoder            --share-decoder-input-output-embed
#   twwt    all three tables                           --share-all-embeddings
#
# Hardware   one core of a CPU, a minute
# Expected   float32: 15.0 MB untied, 11.9 MB wt, 8.9 MB twwt; int8: 4.3, 3.5, 2.7
# Check      the last line: megabytes (10^6 bytes) of the engine's model.bin
#
# A size does not depend on how long the model was trained, so that one update is enough.
# The corpus comes from prepare-multi30k.sh, which is run first where its result is missing (FROM: see there).
#
# SMOKE, DRY_RUN, RUNS, PLUGIN: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/liu.sh"

(($# == 1)) || stop "needs one ROW; got $# arguments. Use untied, wt or twwt."
case $1 in
    untied) sharing=() ;;
    wt) sharing=(--share-decoder-input-output-embed) ;;
    twwt) sharing=(--share-all-embeddings) ;;
    *) stop "ROW: needs untied, wt or twwt; got $1." ;;
esac
WORK=${WORK:-$RUNS/multi30k${SMOKE:+-smoke}}
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
