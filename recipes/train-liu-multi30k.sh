#!/usr/bin/env bash
# Liu, Zhai & Chen (2020) on a small scale: a Transformer on Multi30k, German to English. Trains one row and scores the
# test set.
#
#   recipes/train-liu-multi30k.sh METHOD     # plain l2-input square-output distance cosine, or fairseq
#
# Row        the methods of the paper's table 3, on a corpus and a model that one CPU core trains in ten minutes; fairseq is
#            fairseq's own `transformer` with its own criterion and otherwise the same flags, what plain is held against
# Hardware   one core of a CPU; 10 CPU minutes on an AMD EPYC (Zen 4)
# Expected   BLEU 36 to 38 for every METHOD; see README.md: two seeds of one differ by more than two methods do
# Check      the last line: BLEU of tokenised text, as multi-bleu.perl gives it; above it sacreBLEU's of detokenised text
#
# All three embeddings are shared; 4 encoder and 2 decoder layers of 128 units, norms before the sublayers. The learning
# rate falls in a straight line to 0 at the last update: the best use of a fixed budget.
# The corpus comes from prepare-multi30k.sh, which is run first where its result is missing (FROM: see there).
#
# SEED, UPDATES: liu.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/liu.sh"

(($# == 1)) || stop "needs one METHOD; got $# arguments. Use $methods; or fairseq."
if [[ $1 == fairseq ]]; then
    model=(--arch transformer) criterion=label_smoothed_cross_entropy
else
    need_method "$1"
    model=(--arch tied_transformer --sharing-method "$1")
fi
WORK=${WORK:-$RUNS/multi30k${SMOKE:+-smoke}}
folder=$WORK/transformer-$1-$SEED
UPDATES=${UPDATES:-2500}

need sacremoses
prepared prepare-multi30k.sh
train "$folder" 1 "${model[@]}" --share-all-embeddings \
    --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-layers 4 --encoder-attention-heads 4 \
    --decoder-embed-dim 128 --decoder-ffn-embed-dim 512 --decoder-layers 2 --decoder-attention-heads 4 \
    --encoder-normalize-before --decoder-normalize-before --dropout 0.1 \
    --lr 2e-3 --lr-scheduler polynomial_decay --warmup-updates "$((UPDATES / 10))" --total-num-update "$UPDATES" \
    --max-update "$UPDATES" --max-tokens 1000 --required-batch-size-multiple 1 --no-epoch-checkpoints
reference=$WORK/text/test_2016_flickr.en
DETOKENIZE=en "$recipes/evaluate.sh" "$WORK/bin" "$folder/checkpoint_best.pt" test "$reference"
