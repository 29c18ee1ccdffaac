#!/usr/bin/env bash
# Liu, Zhai & Chen (2020) on a small scale: a Transformer on Multi30k or Tatoeba. Trains one row and scores the test
# set.
#
#   recipes/train-liu-small.sh CORPUS METHOD     # rows, hardware, time: tables/liu-small-*.json
#
# Row        the methods of the paper's table 3, on corpora and a model that one CPU core trains in ten minutes; fairseq is
#            fairseq's own `transformer` with its own criterion and otherwise the same flags, what plain is held against;
#            untied shares no table, decoder-tied those of the decoder, the others all three. The methods of table 4 are
#            those of multi30k-dynamicconv, a DynamicConv with the same options
# Corpus     prepare-multi30k.sh or prepare-tatoeba.sh
# Expected   two seeds of one METHOD differ by more than two methods do; measured: RESULTS.md
# Check      the last line: BLEU of tokenised text, as multi-bleu.perl gives it; above it sacreBLEU's of detokenised text
#
# 4 encoder and 2 decoder layers of 128 units, norms before the sublayers. The learning rate falls in a straight line to 0
# at the last update: the best use of a fixed budget.
#
# SEED, UPDATES: liu.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/liu.sh"

need_row "CORPUS METHOD" "$@"
corpus=$1 method=$2
arch=transformer
case $corpus in
    multi30k*) prepare=(prepare-multi30k.sh) test=test_2016_flickr ;;
    tatoeba-*) prepare=(prepare-tatoeba.sh "${corpus#*-}") test=test ;;
esac
if [[ $corpus == *-dynamicconv ]]; then # the kernels' widths are the first of the architecture's, one a layer
    arch=lightconv sharing+=(--encoder-kernel-size-list "[3,7,15,31]" --decoder-kernel-size-list "[3,7]")
fi
model=(--arch "tied_$arch")
case $method in
    untied) sharing=() ;;
    decoder-tied) sharing=(--share-decoder-input-output-embed) ;;
    fairseq) model=(--arch "$arch") criterion=label_smoothed_cross_entropy ;;
    *) model+=(--sharing-method "$method") ;;
esac
WORK=${WORK:-$RUNS/${corpus%-dynamicconv}$of_work}
folder=$WORK/$arch-$method-$SEED$training_variant
UPDATES=${UPDATES:-2500}

need sacremoses
prepared "${prepare[@]}"
train_small "$folder" 128 2e-3 "${model[@]}"
DETOKENIZE=en "$recipes/evaluate.sh" "$WORK/bin" "$folder/checkpoint_best.pt" test "$WORK/text/$test.en"
record "liu-small-$corpus" "$method" "$folder"
