#!/usr/bin/env bash
# Press & Wolf (2016), table 5: PTB with dropout. Trains one row and scores it on valid and test.
#
#   recipes/train-table5-large.sh ROW
#
#   ROW       the paper's row    parameters   paper: train / valid / test   command
#   large     Large              66M          37.8 / 82.2 / 78.4            --arch zaremba_lm_large
#   large-wt  Large+WT           51M          48.5 / 77.7 / 74.3            --arch zaremba_lm_large_wt
#   gal       Large+BD+WD        66M          24.3 / 78.1 / 75.2            --arch gal_lm_large
#   gal-wt    Large+BD+WT        51M          28.2 / 75.8 / 73.2            --arch gal_lm_large_wt
#   rhn       RHN+BD             32M          67.4 / 71.2 / 68.5            --arch highway_lm_8x890
#   rhn-wt    RHN+BD+WT          24M          74.1 / 68.1 / 66.0            --arch highway_lm_9x860_wt
#
# Hardware   one GPU: hours for the 55 epochs of the LSTMs, a day or two for the hundreds of a highway network. On one core
#            of a CPU the LSTMs take about three days. (Estimates: RESULTS.md has what was run)
# Expected   test within 2% of the paper
# Check      "Evaluated 82,430 tokens" and the perplexity, the last two lines
#
# The presets bring the whole recipe. The paper's highway networks are rows of the table of Zilly et al.'s repository: of
# depth 8 untied, of depth 9 tied; they are scored at the epoch that is best on valid, the LSTMs at their last one.
# Corpus: prepare-ptb.sh, which runs first if its result is missing (FROM: see its header). An interrupted training
# resumes; to train anew, remove its folder, $WORK/ROW-SEED.
#
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
# Scoring the training set too (SPLITS="train valid test") takes hours on a CPU, as it is one stream.
SPLITS=${SPLITS:-valid test}
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

rows="large, large-wt, gal, gal-wt, rhn or rhn-wt"
(($# == 1)) || stop "needs one ROW; got $# arguments. Use $rows."
WORK=${WORK:-$RUNS/ptb${SMOKE:+-smoke}}
checkpoint=last
case $1 in
    large) preset=zaremba_lm_large ;;
    large-wt) preset=zaremba_lm_large_wt ;;
    gal) preset=gal_lm_large ;;
    gal-wt) preset=gal_lm_large_wt ;;
    rhn) preset=highway_lm_8x890 checkpoint=best ;;
    rhn-wt) preset=highway_lm_9x860_wt checkpoint=best ;;
    *) stop "ROW: needs $rows; got $1." ;;
esac
train_and_score prepare-ptb.sh "$WORK/$1-$SEED" "$checkpoint" --arch "$preset"
record table5 "$1" "$WORK/$1-$SEED"
