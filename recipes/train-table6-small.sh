#!/usr/bin/env bash
# Press & Wolf (2016), table 6: PTB without dropout. Trains one row and scores it on train, valid and test.
#
#   recipes/train-table6-small.sh ROW            # rows, the paper's figures, hardware, time: tables/table6.json
#
# Corpus     prepare-ptb.sh
# Expected   test within 2.1% of the paper; measured: RESULTS.md
# Check      "Evaluated 82,430 tokens" and the perplexity, the last two lines
#
# The presets bring the whole recipe of Zaremba et al. (2014); P has the bias that it has in the paper's code. That code
# halves the learning rate after each epoch from the fifth on; Zaremba et al.'s text, small-early-decay, from the fourth on.
#
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

need_row ROW "$@"
WORK=${WORK:-$RUNS/ptb$of_work}
case $1 in
    small) options=(--arch zaremba_lm_small) ;;
    wt) options=(--arch zaremba_lm_small_wt) ;;
    pr) options=(--arch zaremba_lm_small_pr) ;;
    wt-pr) options=(--arch zaremba_lm_small_wt_pr) ;;
    wt-pr-no-bias) options=(--arch zaremba_lm_small_wt_pr --no-projection-bias) ;;
    small-early-decay) options=(--arch zaremba_lm_small --force-anneal 5) ;;
    kn5)
        prepared prepare-ptb.sh
        log=$WORK/kn5.log
        shown_tiedemb "$log" ngram "$WORK/text/train.txt" --order 5 --test "$WORK/text/valid.txt" "$WORK/text/test.txt"
        SEED='' record table6 kn5 --ngram "valid=$log" "test=$log"
        exit
        ;;
esac
folder=$WORK/$1-$SEED$training_variant
train_and_score prepare-ptb.sh "$folder" last "${options[@]}"
record table6 "$1" "$folder"
