# shellcheck shell=bash
# Functions and settings of the recipes for Press & Wolf's table 8, which source this file; it runs nothing.
#
# JOBS    processes of the tokeniser; the default is one per processor
# MERGES  BPE merges; the default is the paper's 89500
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

JOBS=${JOBS:-$cores}
MERGES=${MERGES:-${SMOKE:+300}} MERGES=${MERGES:-89500}

# binarize TARGET SPLIT...: makes $WORK/joint, with one dictionary for both languages, and as the last thing $WORK/bin, with
# one of each, from the tokenised texts $WORK/text/SPLIT.{en,TARGET}. The first split is train, the second valid, others are
# test sets.
binarize() {
    local target=$1 split language tests
    shift
    run python "$recipes/clean_pairs.py" "$WORK/text/train" "$WORK/bpe/words" en "$target" --longest 80 --ratio 9
    run_to "$WORK/bpe/both" cat "$WORK/bpe/words.en" "$WORK/bpe/words.$target"
    run subword-nmt learn-bpe --symbols "$MERGES" --input "$WORK/bpe/both" --output "$WORK/bpe/codes"
    run rm "$WORK/bpe/both"
    for language in en "$target"; do
        run subword-nmt apply-bpe --codes "$WORK/bpe/codes" --input "$WORK/bpe/words.$language" --output "$WORK/bpe/train.$language"
        for split in "${@:2}"; do
            run subword-nmt apply-bpe --codes "$WORK/bpe/codes" \
                --input "$WORK/text/$split.$language" --output "$WORK/bpe/$split.$language"
        done
    done
    printf -v tests ",$WORK/bpe/%s" "${@:3}"
    for split in joint bin; do
        local dictionary=()
        [[ $split == bin ]] || dictionary=(--joined-dictionary)
        run fairseq-preprocess --source-lang en --target-lang "$target" "${dictionary[@]}" \
            --trainpref "$WORK/bpe/train" --validpref "$WORK/bpe/$2" --testpref "${tests#,}" \
            --destdir "$WORK/$split.partial"
    done
    run mv "$WORK/joint.partial" "$WORK/joint"
    run mv "$WORK/bin.partial" "$WORK/bin"
}
