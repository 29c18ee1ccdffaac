#!/usr/bin/env bash
# The lecture's self-normalised language models (Devlin et al. 2014), on PTB: trains one row, and prints how far its
# logits are from log-probabilities. A self-normalised model gives a word's probability by one logit.
#
#   recipes/train-lecture-self-normalised.sh ROW # rows, the lecture's figures, time: tables/lecture-self-normalised.json
#
# Corpus     prepare-ptb.sh
# Expected   |log Z| falls from row to row; alpha 0.1: 0.7 at most, and a perplexity within 3% of alpha 0; alpha 1: 0.3 at
#            most, within 10%. The lecture's log P is of Arabic news, by another model: compare what changes from row to row
# Check      the last line: mean log P, and mean, size and spread of log Z
#
# The lecture maximises sum log P - alpha (log Z)^2. Biases start at log 1/V, where log Z is nearly 0.
#
# ARCH      the preset that is trained; the default is feedforward_lm_wt, three epochs
# SAMPLE    number of tokens whose log Z is computed; the default is 10000
# SEED, SPLITS: language-model.sh. SMOKE, DRY_RUN, RUNS, PLUGIN, GPUS: common.sh
default_splits='valid test'
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

need_row ROW "$@"
WORK=${WORK:-$RUNS/ptb$of_work}
case $1 in
    alpha-*) options=(--output-bias-init uniform --z-loss "${1#alpha-}") ;;
    nce) options=(--output-bias-init unigram --output-layer nce --noise-samples 500) ;;
esac
arch=${ARCH:-feedforward_lm_wt}
folder=$WORK/${ARCH:+$ARCH-}self-normalised-$1-$SEED$training_variant
[[ $arch != feedforward_lm* && $arch != bengio_lm ]] || text_rows=200
train_and_score prepare-ptb.sh "$folder" last --arch "$arch" "${options[@]}"
case $1 in
    alpha-0) lecture="log P -1.82, |log Z| 5.02" ;;
    alpha-0.01) lecture="log P -1.81, |log Z| 1.35" ;;
    alpha-0.1) lecture="log P -1.83, |log Z| 0.68" ;;
    alpha-1) lecture="log P -1.91, |log Z| 0.28" ;;
    nce) lecture="no such row" ;;
esac
[[ $DRY_RUN ]] || echo "lecture (Arabic), $1: $lecture; here, by sentences of valid:"
log_tiedemb "$folder/raw-valid.log" score "$folder/checkpoint_last.pt" "$WORK/text/valid.txt" \
    --data "$WORK/bin" --raw --raw-sample "${SAMPLE:-10000}"
run tail -n 1 "$folder/raw-valid.log"

# figure WORDS: prints the number after WORDS in the last line.
figure() {
    [[ $DRY_RUN ]] || sed -n "\$s/.*$1 \([-0-9.]*\).*/\1/p" "$folder/raw-valid.log"
}
[[ $arch != feedforward_lm_wt ]] || record lecture-self-normalised "$1" "$folder" \
    --figure "log-p=$(figure 'mean log P')" "log-z=$(figure 'mean |log Z|')" "sd=$(figure 'standard deviation')"
