#!/usr/bin/env bash
# Press & Wolf (2016), table 6: PTB without dropout. Trains one row and scores it on train, valid and test.
#
#   recipes/train-table6-small.sh ROW
#
#   ROW                the paper's row    parameters   paper: train / valid / test   command
#   small              Small model        4.65M        38.0 / 120.7 / 114.5          --arch zaremba_lm_small
#   wt                 Small+WT           2.65M        36.4 / 117.5 / 112.4          --arch zaremba_lm_small_wt
#   pr                 Small+PR           4.69M        50.8 / 116.0 / 111.7          --arch zaremba_lm_small_pr
#   wt-pr              Small+WT+PR        2.69M        53.5 / 104.9 / 100.9          --arch zaremba_lm_small_wt_pr
#   wt-pr-no-bias      none: wt-pr, but P has no bias                                ... --no-projection-bias
#   small-early-decay  none: small, by Zaremba et al.'s text (below)                 ... --force-anneal 5
#   kn5                KN 5-gram                       - / - / 141                   fairseq-tiedemb ngram
#
# Hardware   one core of a CPU, about an hour a row for its 13 epochs (kn5: half a minute); minutes on a GPU
# Expected   test within 2.1% of the paper; measured: RESULTS.md
# Check      "Evaluated 82,430 tokens" and the perplexity, the last two lines
#
# The presets bring the whole recipe of Zaremba et al. (2014); P has the bias that it has in the paper's code. That code
# halves the learning rate after each epoch from the fifth on; Zaremba et al.'s text does so from the fourth on.
# Corpus: prepare-ptb.sh, which runs first if its result is missing (FROM: see its header). An interrupted training
# resumes; to train anew, remove its folder, $WORK/ROW-SEED.
#
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

rows="small, wt, pr, wt-pr, wt-pr-no-bias, small-early-decay or kn5"
(($# == 1)) || stop "needs one ROW; got $# arguments. Use $rows."
WORK=${WORK:-$RUNS/ptb${SMOKE:+-smoke}}
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
        [[ -z $DRY_RUN ]] || log=/dev/null
        run_tiedemb ngram "$WORK/text/train.txt" --order 5 --test "$WORK/text/valid.txt" "$WORK/text/test.txt" | tee "$log"
        SEED='' record table6 kn5 --ngram "valid=$log" "test=$log"
        exit
        ;;
    *) stop "ROW: needs $rows; got $1." ;;
esac
train_and_score prepare-ptb.sh "$WORK/$1-$SEED" last "${options[@]}"
record table6 "$1" "$WORK/$1-$SEED"
