#!/usr/bin/env bash
# Feed-forward language models on PTB: 5-grams, embeddings of width 100, a hidden layer of 200. Trains one row and scores it
# on valid and test, alone and mixed with the Kneser-Ney 5-gram by weights that are the best on valid.
#
#   recipes/train-lecture-nnlm.sh ROW            # rows, hardware, time: tables/lecture-nnlm.json
#
# Corpus     prepare-ptb.sh
# Expected   test at most 170 after 3 epochs, at most 141 (the Kneser-Ney 5-gram's) in the last row; measured: RESULTS.md
# Check      the last lines: weights, and perplexities of valid and test, of the 5-gram, the model, and both mixed
#
# relu-dropout is trained by noise (--output-layer nce, 500 words), at a third of the full softmax's time; its perplexities
# are exact like all others.
# The presets bring the recipe: Adam, 1,000 words an update in 200 rows of 5, a rate that falls linearly to 0.
# Published, PTB test: a feed-forward network 140.2, the Kneser-Ney 5-gram 141.2 (Mikolov's thesis, 2012, table 4.1).
#
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
default_splits='valid test'
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

need_row ROW "$@"
WORK=${WORK:-$RUNS/ptb$of_work}
case $1 in
    bengio) options=(--arch bengio_lm) ;;
    plain) options=(--arch feedforward_lm --deep-output none) ;;
    deep-untied) options=(--arch feedforward_lm) ;;
    deep-tied) options=(--arch feedforward_lm_wt) ;;
    relu-dropout)
        options=(--arch feedforward_lm_wt --activation-fn relu --skip-connections --dropout 0.2)
        options+=(--output-layer nce --noise-samples 500 --lr 0.003 --max-update 9300)
        ;;
esac
text_rows=200
folder=$WORK/$1-$SEED$training_variant
train_and_score prepare-ptb.sh "$folder" last "${options[@]}"
for split in valid test; do
    log_tiedemb "$folder/stream-$split.log" score "$folder/checkpoint_last.pt" "$WORK/text/$split.txt" \
        --data "$WORK/bin" --stream --per-word "$folder/$split.words"
done
log_tiedemb "$folder/mixed.log" ngram "$WORK/text/train.txt" --order 5 --held-out "$WORK/text/valid.txt" \
    --test "$WORK/text/test.txt" --interpolate "$folder/valid.words" "$folder/test.words"
run tail -n 4 "$folder/mixed.log" # weights, perplexity of valid and test, model
[[ $DRY_RUN ]] || mixed=$(awk '$NF == "interpolated" { print $(NF - 1) }' "$folder/mixed.log")
record lecture-nnlm "$1" "$folder" --figure "mixed=${mixed-}"
