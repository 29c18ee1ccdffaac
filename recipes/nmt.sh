# shellcheck shell=bash
# Functions and settings of the small recipes for recurrent translation models, which source this file; it runs nothing.
#
# SEED, UPDATES, MAX_TOKENS, LR, DROPOUT, EMBED, HIDDEN   settings of a training; the defaults are 1, the recipe's, 1000,
#                                                         3e-3, the recipe's, 256 and 256
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

SEED=${SEED:-1}
if [[ $SMOKE ]]; then
    : "${UPDATES:=10}" "${EMBED:=16}" "${HIDDEN:=16}"
fi

# train_small_nmt FOLDER SOURCE OPTION...: trains a model from SOURCE to English on $WORK/bin into FOLDER with these options.
# The learning rate falls linearly to 0 at the last update: the best use of a fixed budget. The multiple of 1 allows any
# number of sentences in a batch.
train_small_nmt() {
    local embed=${EMBED:-256} hidden=${HIDDEN:-256}
    use_devices
    run_training "$1" "$WORK/bin" --source-lang "$2" --target-lang en "${@:3}" \
        --encoder-embed-dim "$embed" --decoder-embed-dim "$embed" --decoder-out-embed-dim "$embed" \
        --encoder-hidden-size "$hidden" --decoder-hidden-size "$hidden" \
        --dropout "$DROPOUT" --label-smoothing 0.1 --clip-norm 1 \
        --lr-scheduler polynomial_decay --warmup-updates "$((UPDATES / 20))" --total-num-update "$UPDATES" \
        --max-update "$UPDATES" --max-tokens "$((${MAX_TOKENS:-1000} / processes))" --required-batch-size-multiple 1 \
        --no-epoch-checkpoints --log-interval 100
}
