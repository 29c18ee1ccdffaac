#!/usr/bin/env bash
# Multi30k, German to English, text only: trains one model and scores it on test_2016_flickr.
#
#   recipes/train-multi30k.sh MODEL              # models, hardware, time: tables/multi30k.json
#
# Row        what Press & Wolf (2016, table 8) compare on WMT, on a corpus that one CPU core trains in half an hour
# Corpus     prepare-multi30k.sh
# Expected   measured: RESULTS.md
# Check      the last line; the one before it is of the validation set
#
# SEED, UPDATES, MAX_TOKENS, LR, DROPOUT, EMBED, HIDDEN: nmt.sh; the defaults are those of the results in RESULTS.md, and of
# the presets lstm_nmt_small*
# SMOKE, DRY_RUN, RUNS, PLUGIN: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/nmt.sh"

need_row MODEL "$@"
WORK=${WORK:-$RUNS/multi30k$of_work}
: "${DROPOUT:=0.3}"

# DL4MT's small initial weights are made for Adadelta, whose settings here are those of config/recipe/dl4mt.yaml. With
# Adam at the rate of the others dl4mt_twwt learned nothing but word frequencies. In 4,000 updates by Adadelta it barely
# begins to use the source; they are more, 20,000, and in bfloat16, which takes less time.
optimizer=(--optimizer adam --lr "${LR:-3e-3}")
adadelta=(--optimizer adadelta --adadelta-rho 0.95 --adadelta-eps 1e-6 --sentence-avg --lr "${LR:-1}")
# The plugin's criterion never holds all logits in memory; its loss is fairseq's.
ours=(--criterion tied_cross_entropy)
theirs=(--arch lstm --encoder-bidirectional --criterion label_smoothed_cross_entropy)
case $1 in
    untied) model=(--arch lstm_nmt "${ours[@]}") ;;
    wt) model=(--arch lstm_nmt_wt "${ours[@]}") ;;
    twwt) model=(--arch lstm_nmt_twwt "${ours[@]}") ;;
    dl4mt*)
        model=(--arch "$1" "${ours[@]}") optimizer=("${adadelta[@]}") PRECISION=${PRECISION:-bf16}
        : "${UPDATES:=20000}"
        ;;
    fairseq_untied) model=("${theirs[@]}") ;;
    fairseq_wt) model=("${theirs[@]}" --share-decoder-input-output-embed) ;;
    fairseq_twwt) model=("${theirs[@]}" --share-all-embeddings) ;;
esac
: "${UPDATES:=4000}"
folder=$WORK/$1-$SEED$training_variant

need fairseq-train python
prepared prepare-multi30k.sh
train_small_nmt "$folder" de "${model[@]}" "${optimizer[@]}"
for split in valid test; do
    declare -A reference=([valid]=val [test]=test_2016_flickr)
    "$recipes/evaluate.sh" \
        "$WORK/bin" "$folder/checkpoint_best.pt" "$split" "$WORK/text/${reference[$split]}.en"
done
record multi30k "$1" "$folder"
