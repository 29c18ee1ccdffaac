#!/usr/bin/env bash
# n-gram models of Penn Treebank by every smoothing method: perplexity on the test set, and on the validation set.
#
#   recipes/measure-lecture-ngrams.sh            # Mikolov's (2012) figures, by SRILM, and time: tables/lecture-ngrams.json
#
# Corpus     prepare-ptb.sh
# Check      the last lines, the table. Each command's whole output stays in $WORK/ngrams
#
# Jelinek-Mercer's weights are estimated on the validation text, so that its validation perplexity is biased. A back-off
# model ignores lower orders for seen n-grams, and gets worse with the order unless rare n-grams are cut off.
#
# ORDERS     the default is "3 4 5"
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

(($# == 0)) || stop "needs no arguments; got $#."
ORDERS=${ORDERS:-3 4 5}
WORK=${WORK:-$RUNS/ptb$of_work}
folder=$WORK/ngrams

# row NAME OPTION...: estimates and scores a row's model, for all ORDERS.
rows=()
declare -A label
row() {
    local name=$1 order
    rows+=("$name")
    label[$name]=$2
    shift 2
    for order in $ORDERS; do
        log_tiedemb "$(log_of "$name" "$order")" ngram "$WORK/text/train.txt" --order "$order" \
            --test "$WORK/text/test.txt" "$WORK/text/valid.txt" "$@"
    done
}

# log_of NAME ORDER: prints the path of a log.
log_of() {
    echo "$folder/$1-$2.log"
}

# perplexity_of FILE LOG: prints the perplexity of a text from the command's log.
perplexity_of() {
    FILE=$1 awk '{ n = length(ENVIRON["FILE"]) } substr($0, length($0) - n + 1) == ENVIRON["FILE"] { print $3 }' "$2"
}

table() {
    local name order line log test valid figures
    printf '\n%-38s' "perplexity: test (valid)"
    for order in $ORDERS; do printf '%18s' "order $order"; done
    printf '\n'
    for name in "${rows[@]}"; do
        line=$(printf '%-38s' "${label[$name]}")
        figures=()
        for order in $ORDERS; do
            log=$(log_of "$name" "$order")
            test=$(perplexity_of "$WORK/text/test.txt" "$log") valid=$(perplexity_of "$WORK/text/valid.txt" "$log")
            line+=$(printf '%18s' "$test ($valid)")
            figures+=("test-$order=$test" "valid-$order=$valid")
        done
        echo "$line"
        [[ $ORDERS != "3 4 5" ]] || SEED='' record lecture-ngrams "$name" --figure "${figures[@]}"
    done
}

need python
prepared prepare-ptb.sh
run mkdir -p "$folder"
held_out=(--held-out "$WORK/text/valid.txt")
row jelinek-mercer-order "Jelinek-Mercer, a weight an order" --smoothing jelinek-mercer --weights-by order "${held_out[@]}"
row jelinek-mercer "Jelinek-Mercer, a weight a bucket" --smoothing jelinek-mercer "${held_out[@]}"
row katz-5-whole "Katz, k = 5, nothing cut" --smoothing katz --katz-k 5 --cutoff 1
row katz-5 "Katz, k = 5" --smoothing katz --katz-k 5
row katz-7 "Katz, k = 7" --smoothing katz
row witten-bell "Witten-Bell" --smoothing witten-bell
row witten-bell-back-off "Witten-Bell, back-off" --smoothing witten-bell --back-off
row absolute "absolute discounting" --smoothing absolute
row absolute-back-off "absolute discounting, back-off" --smoothing absolute --back-off
row kneser-ney "Kneser-Ney" --smoothing kneser-ney
row kneser-ney-back-off "Kneser-Ney, back-off" --smoothing kneser-ney --back-off
row modified-kneser-ney "modified Kneser-Ney" --smoothing modified-kneser-ney
row modified-kneser-ney-back-off "modified Kneser-Ney, back-off" --smoothing modified-kneser-ney --back-off
[[ $DRY_RUN ]] || table
