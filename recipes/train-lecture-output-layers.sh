#!/usr/bin/env bash
# The lecture's output layers, on PTB with one model and equal initial biases. Trains one row and scores it.
#
#   recipes/train-lecture-output-layers.sh LAYER            # layers, hardware, time: tables/lecture-output-layers*.json
#
# Corpus     prepare-ptb.sh
# Expected   measured: RESULTS.md; perplexities are exact, whatever the training loss
# Check      "Evaluated 82,430 tokens" and the perplexity, the last two lines
#
# The classes of -exchange, of words with the same neighbours, are made by `fairseq-tiedemb classes` in half a minute.
#
# ARCH  the model; the default is feedforward_lm, whose tables are not tied, since a tree has no table of words to tie.
#       With zaremba_lm_small the row `softmax` is the row `small` of table 6, except for the initial biases
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
default_splits='valid test'
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

need_row LAYER "$@"
WORK=${WORK:-$RUNS/ptb$of_work}
ARCH=${ARCH:-feedforward_lm}
PRECISION=${PRECISION:-float32} # so small a model does not fill a GPU
case $1 in
    short-list*) layer=short-list ;;
    *) layer=${1%%-*} ;;
esac
options=(--arch "$ARCH" --output-bias-init unigram --output-layer "$layer")
case $1 in
    classes-exchange) options+=(--class-file "$WORK/classes.txt") ;;
    tree-exchange) options+=(--tree classes --class-file "$WORK/classes.txt") ;;
    nce | sampled) options+=(--noise-samples 500) ;;
    nce-100) options+=(--noise-samples 100) ;;
    nce-100-own) options+=(--noise-samples 100 --own-noise) ;;
    short-list) options+=(--short-list "$([[ $SMOKE ]] && echo 50 || echo 2000)") ;;
    short-list-5000) options+=(--short-list "$([[ $SMOKE ]] && echo 50 || echo 5000)") ;;
esac
[[ $ARCH != feedforward_lm* && $ARCH != bengio_lm ]] || text_rows=200
if [[ $1 == *-exchange && ! -e $WORK/classes.txt ]]; then
    prepared prepare-ptb.sh
    run_tiedemb classes "$WORK/bin" --classes "$([[ $SMOKE ]] && echo 10 || echo 100)" --output "$WORK/classes.txt"
fi
folder=$WORK/$ARCH-$1-$SEED$training_variant
train_and_score prepare-ptb.sh "$folder" last "${options[@]}"
case $ARCH in
    feedforward_lm) record lecture-output-layers "$1" "$folder" ;;
    zaremba_lm_small) record lecture-output-layers-lstm "$1" "$folder" ;;
esac
