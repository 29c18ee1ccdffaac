#!/usr/bin/env bash
# Press & Wolf (2016), tables 3 and 4 and section 3, on PTB: word similarity, correlation and training updates of the
# embeddings of table 6's models `small` and `wt`.
#
#   SETS=folder/with/sets recipes/measure-tables3-4.sh      # the paper's figures, time: tables/{table3,table4,section3}.json
#
# Expected   table 3: output and tied above input in every set; table 4: out-tied above in-tied above in-out. PTB has a
#            third of MEN's pairs and 7% of RareWord's: see the confidence intervals
# Check      10,000 words and 49,995,000 pairs in table 4; 232 rows of 10,000 a batch
#
# The models are those of train-table6-small.sh, which trains them where $WORK/small-SEED or $WORK/wt-SEED has none that is
# trained to the end (FROM: see there).
#
# SETS: vectors.sh. SEED: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"
source "$recipes/vectors.sh"

(($# == 0)) || stop "needs no argument; got $#. Use SETS=... with the folder of the sets."
WORK=${WORK:-$RUNS/ptb$of_work}
find_sets
need python

checkpoints=()
for row in small wt; do
    folder=$WORK/$row-$SEED$training_variant
    is_trained "$folder" || WORK=$WORK SEED=$SEED "$recipes/train-table6-small.sh" "$row"
    checkpoints+=("$folder/checkpoint_last.pt")
done
logs=$WORK/measured-$SEED
run mkdir -p "$logs"
shown_tiedemb "$logs/similarity.log" similarity "${checkpoints[@]}" --dict "$WORK/bin/dict.txt" --sets "${sets[@]}"
shown_tiedemb "$logs/correlation.log" correlation "${checkpoints[@]}" --dict "$WORK/bin/dict.txt"
shown_tiedemb "$logs/updates.log" updates "$WORK/bin" --checkpoint "${checkpoints[@]}"
# Gradients of single words, as in the paper's equations.
shown_tiedemb "$logs/updates-of-words.log" updates "$WORK/bin" --checkpoint "${checkpoints[@]}" --batch-size 1 \
    --tokens-per-sample 1 --batches 2000 --train-subset valid --gen-subset valid

number=0
for row in small-in small-out wt-tied; do
    number=$((number + 1))
    mapfile -t figures < <(set_figures "$logs/similarity.log" "$number")
    record table3 "$row" --figure "${figures[@]}" --note "$(set_note "$logs/similarity.log" "$number")"
done
mapfile -t figures < <(correlation_figures "$logs/correlation.log" in-out in-tied out-tied)
record table4 small --figure "${figures[@]}"

# found LOG N TEXT: prints the number at X in the N-th line that matches TEXT.
found() {
    [[ $DRY_RUN ]] || sed -n "s/^.*${3/X/\\([0-9.]*[0-9]\\)}.*$/\\1/p" "$1" | sed -n "$2p"
}
number=0
for row in small wt; do
    number=$((number + 1))
    record section3 "$row" --figure "rows=$(found "$logs/updates.log" 1 'a batch updates X different rows')" \
        "few=$(found "$logs/updates.log" 1 'rows; X% of all are updated')" \
        "share=$(found "$logs/updates.log" $number "rows read: |input's part| .* = X on average")" \
        "share-of-word=$(found "$logs/updates-of-words.log" $number "rows read: |input's part| .* = X on average")" \
        "repeats=$(found "$logs/updates.log" $number 'p(w_t-1 | history): mean X,')"
done
