#!/usr/bin/env bash
# Liu, Zhai & Chen (2020) on a small scale: a Transformer on Multi30k or Tatoeba. Trains one row and scores the test
# set.
#
#   recipes/train-liu-small.sh CORPUS METHOD     # multi30k tatoeba-de tatoeba-es tatoeba-ro
#                                                # plain l2-input square-output distance cosine, or fairseq
#
# Row        the methods of the paper's table 3, on corpora and a model that one CPU core trains in ten minutes; fairseq is
#            fairseq's own `transformer` with its own criterion and otherwise the same flags, what plain is held against
# Hardware   one core of a CPU; 10 CPU minutes on an AMD EPYC (Zen 4)
# Expected   BLEU 36 to 38 for every METHOD; see RESULTS.md: two seeds of one differ by more than two methods do
# Check      the last line: BLEU of tokenised text, as multi-bleu.perl gives it; above it sacreBLEU's of detokenised text
#
# All three embeddings are shared; 4 encoder and 2 decoder layers of 128 units, norms before the sublayers. The learning
# rate falls in a straight line to 0 at the last update: the best use of a fixed budget.
# Corpus: prepare-multi30k.sh or prepare-tatoeba.sh, which runs first if its result is missing (FROM: see its header).
#
# SEED, UPDATES: liu.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/liu.sh"

corpora="multi30k, tatoeba-de, tatoeba-es or tatoeba-ro"
(($# == 2)) || stop "needs CORPUS and METHOD; got $# arguments. Use $corpora; then $methods; or fairseq."
corpus=$1 method=$2
case $corpus in
    multi30k) prepare=(prepare-multi30k.sh) test=test_2016_flickr ;;
    tatoeba-de | tatoeba-es | tatoeba-ro) prepare=(prepare-tatoeba.sh "${corpus#*-}") test=test ;;
    *) stop "CORPUS: needs $corpora; got $corpus." ;;
esac
if [[ $method == fairseq ]]; then
    model=(--arch transformer) criterion=label_smoothed_cross_entropy
else
    need_method "$method"
    model=(--arch tied_transformer --sharing-method "$method")
fi
WORK=${WORK:-$RUNS/$corpus${SMOKE:+-smoke}}
folder=$WORK/transformer-$method-$SEED$training_variant
UPDATES=${UPDATES:-2500}

need sacremoses
prepared "${prepare[@]}"
train_small "$folder" 128 2e-3 "${model[@]}"
DETOKENIZE=en "$recipes/evaluate.sh" "$WORK/bin" "$folder/checkpoint_best.pt" test "$WORK/text/$test.en"
record "liu-small-$corpus" "$method" "$folder"
