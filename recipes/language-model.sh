# shellcheck shell=bash
# Functions and settings of the recipes for language models, which source this file; it runs nothing.
#
# SEED    the seed of a training; the default is 1
# SPLITS  splits on which a trained model is scored; the default is "train valid test"
# GPUS    see common.sh. The paper's 20 rows of text are spread over the GPUs: 1, 2, 4, 5, 10 or 20 GPUs train exactly
#         as in the paper; 8 GPUs train 24 rows, 3 per GPU. A recipe with another number of rows sets text_rows
#
# A recipe of another family sets scoring, options of fairseq-eval-lm, and small, sizes of SMOKE=1.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

SEED=${SEED:-1}
SPLITS=${SPLITS:-${default_splits:-train valid test}} # a recipe may have another default
text_rows=20
# One stream from the first token to the last: every token is predicted once, with all that came before it.
scoring=(--task contiguous_lm --tokens-per-sample 200)
small=(--decoder-embed-dim 100 --decoder-hidden-size 100)

# text_of SPLIT SOURCE: makes $WORK/text/SPLIT.txt; with SMOKE=1 from the first lines only.
text_of() {
    local lines=40
    [[ $1 != train ]] || lines=400
    if [[ $SMOKE ]]; then
        run_to "$WORK/text/$1.txt" head -n "$lines" "$2"
    else
        run cp "$2" "$WORK/text/$1.txt"
    fi
}

# binarize [COUNT...]: makes $WORK/bin from $WORK/text/PART.txt of each of the $parts, with $preprocessing, options of
# fairseq-preprocess. It appears last, when it is complete. The counts are the tokens of each part with one <eos> a line, and
# the dictionary's lines: neither <eos> nor <unk> is among them. Without counts none are checked.
parts=(train valid test) preprocessing=()
binarize() {
    local part fresh=$WORK/bin.partial texts=()
    for part in "${parts[@]}"; do
        texts+=("--${part}pref" "$WORK/text/$part.txt")
    done
    run rm -rf "$fresh"
    # --padding-factor 1: by default, fairseq adds up to 7 types, which the model would learn never to predict.
    run fairseq-preprocess --only-source --padding-factor 1 "${preprocessing[@]}" --destdir "$fresh" "${texts[@]}"
    if [[ -z $SMOKE ]] && (($#)); then
        for part in "${parts[@]}"; do
            need_tokens "$fresh/preprocess.log" "$part" "$1"
            shift
        done
        need_lines "$fresh/dict.txt" "$1" "Use the corpus that this recipe is for."
    fi
    run mv "$fresh" "$WORK/bin"
}

# need_tokens LOG SPLIT COUNT: stops if fairseq-preprocess found another number of tokens, <eos> included.
need_tokens() {
    local tokens
    [[ $DRY_RUN ]] && return
    tokens=$(sed -n "s|.*/$2\.txt: [0-9]* sents, \([0-9]*\) tokens, .*|\1|p" "$1")
    [[ $tokens == "$3" ]] || stop "$2: needs $3 tokens; got $tokens. Use the corpus that this recipe is for."
}

# train_and_score PREPARE FOLDER CHECKPOINT OPTION...: trains a language model with these options of fairseq-train and
# scores CHECKPOINT, last or best. The corpus is $WORK/bin, which the script PREPARE makes where it is missing. An
# interrupted training resumes.
train_and_score() {
    local prepare=$1 folder=$2 checkpoint=$2/checkpoint_$3.pt split
    local training=()
    shift 3
    use_devices
    ((processes == 1)) || training+=(--batch-size "$(((text_rows + processes - 1) / processes))")
    [[ -z $SMOKE ]] || training+=(--max-epoch 1 "${small[@]}")

    need fairseq-train fairseq-eval-lm python
    prepared "$prepare"
    run_training "$folder" "$WORK/bin" "$@" "${training[@]}" --no-epoch-checkpoints
    for split in $SPLITS; do
        score "$checkpoint" "$split" "$folder/score-$split.log"
        run tail -n 2 "$folder/score-$split.log" # how many tokens, and the perplexity
    done
}

# score CHECKPOINT SPLIT LOG: scores a model on a split of $WORK/bin.
score() {
    local device=()
    [[ $GPUS != 0 ]] || device=(--cpu)
    run_log "$3" fairseq-eval-lm "$WORK/bin" --user-dir "$PLUGIN" --path "$1" --gen-subset "$2" "${scoring[@]}" \
        --distributed-world-size 1 "${device[@]}"
}

# small_row PREPARE TABLE ARGUMENT...: the whole of a recipe for Press & Wolf's table 7: trains the row that the one ARGUMENT
# names in $WORK, scores it and records it in TABLE. PREPARE: see train_and_score.
small_row() {
    local prepare=$1 table=$2 preset=zaremba_lm_small folder
    shift 2
    need_row ROW "$@"
    folder=$WORK/$1-$SEED$training_variant
    [[ $1 == small ]] || preset+=_${1//-/_}
    train_and_score "$prepare" "$folder" last --arch "$preset"
    record "$table" "$1" "$folder"
}
