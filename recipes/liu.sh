# shellcheck shell=bash
# Functions and settings of the recipes for the tables of Liu, Zhai & Chen (2020), which source this file; it runs
# nothing.
#
# SEED      the seed of a training; the default is 1
# UPDATES   number of updates; the default depends on the recipe
# GPUS      see common.sh; --update-freq and --max-tokens keep the paper's batch size with any number of GPUs
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

SEED=${SEED:-1}
criterion=tied_cross_entropy
sharing=(--share-all-embeddings)

# train FOLDER BATCHES TOKENS OPTION...: trains a model on $WORK/bin into FOLDER with these options and $criterion. BATCHES of
# TOKENS make an update. An interrupted training resumes.
train() {
    local folder=$1 batches=$2 tokens=$3 each
    shift 3
    use_devices
    if [[ $SMOKE ]]; then
        # A small model and a short training; other options are unchanged.
        set -- "$@" --max-epoch 2 --encoder-embed-dim 32 --encoder-ffn-embed-dim 32 --decoder-embed-dim 32 --decoder-ffn-embed-dim 32
        batches=1
    fi
    each=$(((batches + processes - 1) / processes))
    need fairseq-train python
    run_training "$folder" "$WORK/bin" "$@" --criterion "$criterion" --label-smoothing 0.1 \
        --optimizer adam --adam-betas "(0.9, 0.98)" --adam-eps 1e-8 --clip-norm 0 \
        --update-freq "$each" --max-tokens "$((batches * tokens / (processes * each)))"
}

# average FOLDER: makes FOLDER/average.pt from the last 10 epochs' checkpoints.
average() {
    local folder=$1 count=10
    [[ -z $SMOKE ]] || count=2
    run_tiedemb average --inputs "$folder" --num-epoch-checkpoints "$count" \
        --output "$folder/average.pt"
}

# train_small FOLDER WIDTH RATE OPTION...: trains the small Transformer of the recipes for Multi30k and Tatoeba, with these
# units and this peak learning rate, for $UPDATES, with these options; $sharing makes its tables one.
train_small() {
    local folder=$1 width=$2 rate=$3
    shift 3
    PRECISION=${PRECISION:-float32} # so small a model does not fill a GPU
    train "$folder" 1 1000 "$@" "${sharing[@]}" \
        --encoder-embed-dim "$width" --encoder-ffn-embed-dim "$((4 * width))" --encoder-layers 4 --encoder-attention-heads 4 \
        --decoder-embed-dim "$width" --decoder-ffn-embed-dim "$((4 * width))" --decoder-layers 2 --decoder-attention-heads 4 \
        --encoder-normalize-before --decoder-normalize-before --dropout 0.1 \
        --lr "$rate" --lr-scheduler polynomial_decay --warmup-updates "$((UPDATES / 10))" --total-num-update "$UPDATES" \
        --max-update "$UPDATES" --required-batch-size-multiple 1 --no-epoch-checkpoints
}
