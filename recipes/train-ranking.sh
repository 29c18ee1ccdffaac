#!/usr/bin/env bash
# The sharing methods on one small language model, Penn Treebank, each at its own best learning rate: which one is best? The
# perplexities of seeds are closer to one another than BLEU of Multi30k, which cannot tell the methods apart. Trains one row
# and scores valid and test.
#
#   recipes/train-ranking.sh METHOD              # rows, hardware, time: tables/ranking.json
#
# Corpus     prepare-ptb.sh
# Expected   no published figures
# Check      the last line: the perplexity of the test set
#
# The model is zaremba_lm_small_wt, 2 x 200 units, without dropout. 5 epochs in bfloat16; the rate is halved after each from
# the second on. The rate of a method is the best on the validation set with seed 1 of those in the table; with dropout, 1.
#
# LR, DROPOUT   another learning rate, and dropout of embeddings, between layers and of outputs
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
default_splits='valid test'
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

need_row METHOD "$@"
rate=1
case $1,${DROPOUT:-0} in
    scaled,0 | scaled-words,0) rate=0.5 ;;
    scaled-cosine,0 | fixnorm,0) rate=0.25 ;;
esac
PRECISION=${PRECISION:-bf16}
WORK=${WORK:-$RUNS/ptb$of_work}
folder=$WORK/ranking-$1-$SEED$training_variant
train_and_score prepare-ptb.sh "$folder" last --arch zaremba_lm_small_wt --sharing-method "$1" \
    --lr "${LR:-$rate}" ${DROPOUT:+--dropout "$DROPOUT"} --max-epoch 5 --force-anneal 3
record ranking "$1" "$folder"
