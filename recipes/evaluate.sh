#!/usr/bin/env bash
# Translates one split with beam 5 and prints its BLEU with sacreBLEU's signature.
#
#   recipes/evaluate.sh BIN CHECKPOINT SPLIT REFERENCE
#
# BIN         folder of fairseq-preprocess
# CHECKPOINT  the translations go beside it, to SPLIT.log (fairseq's output), SPLIT.hyp (one a line, in order) and
#             SPLIT.bleu (sacreBLEU's; SPLIT.usual.bleu and SPLIT.detok.bleu are those of COMPOUNDS and DETOKENIZE)
# SPLIT       valid or test
# REFERENCE   the text of the split before BPE, tokenised as the training text was
#
# BEAM, LENPEN  length penalty; 5 and 1
# OVERRIDES     changed settings of the model, as in fairseq-generate's --model-overrides
# PIECES        the program that split words: subword_nmt, or sentencepiece
# COMPOUNDS     with sentencepiece, whose text is not tokenised: a language. The usual BLEU is printed, and as the last
#               line that of tokenised text with compounds split, as in fairseq's results for WMT16 English to German
# DETOKENIZE    with subword_nmt: a language. The BLEU of the detokenised text is printed too, before the usual one
# GPUS          0 for the CPU
# DRY_RUN, PLUGIN: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

(($# == 4)) || stop "needs BIN CHECKPOINT SPLIT REFERENCE; got $# arguments."
bin=$1 checkpoint=$2 split=$3 reference=$4
[[ $DRY_RUN || -f $reference ]] || stop "REFERENCE: needs a file; got $reference, which is none. Use another."
[[ $DRY_RUN || -f $checkpoint ]] || stop "CHECKPOINT: needs a file; got $checkpoint. Use another."
output=$(dirname "$checkpoint")/$split

device=()
[[ $GPUS != 0 ]] || device=(--cpu)
need fairseq-generate sacrebleu
run_to "$output.log" fairseq-generate "$bin" --user-dir "$PLUGIN" --path "$checkpoint" --gen-subset "$split" \
    --beam "${BEAM:-5}" --lenpen "${LENPEN:-1}" --max-tokens 2000 --post-process "${PIECES:-subword_nmt}" \
    ${OVERRIDES:+--model-overrides "$OVERRIDES"} "${device[@]}"
# fairseq-generate sorts translations by length; their numbers give the order of the corpus.
run_to "$output.h" grep '^H-' "$output.log"
run_to "$output.sorted" sort -t - -k 2 -n "$output.h"
run_to "$output.hyp" cut -f 3 "$output.sorted"
run rm "$output.h" "$output.sorted"
[[ $DRY_RUN ]] || need_lines "$output.hyp" "$(wc -l <"$reference")" "Use the reference of the split $split."

translated=$output.hyp
if [[ ${COMPOUNDS:-} ]]; then
    need sacremoses
    run_shown "$output.usual.bleu" sacrebleu "$reference" --input "$translated" --width 2 --format text
    run_from "$reference" "$output.tok.ref" sacremoses -q -l "$COMPOUNDS" tokenize
    run_from "$translated" "$output.tok.hyp" sacremoses -q -l "$COMPOUNDS" tokenize
    for side in ref hyp; do
        run_from "$output.tok.$side" "$output.split.$side" sed -E 's/(\S)-(\S)/\1 ##AT##-##AT## \2/g'
    done
    reference=$output.split.ref translated=$output.split.hyp
fi
if [[ ${DETOKENIZE:-} ]]; then
    need sacremoses
    run_from "$reference" "$output.detok.ref" sacremoses -q -l "$DETOKENIZE" detokenize
    run_from "$translated" "$output.detok.hyp" sacremoses -q -l "$DETOKENIZE" detokenize
    run_shown "$output.detok.bleu" sacrebleu "$output.detok.ref" --input "$output.detok.hyp" --width 2 --format text
fi
# Both sides are tokenised: sacreBLEU must not tokenise again, nor warn about it (--force).
run_shown "$output.bleu" \
    sacrebleu "$reference" --input "$translated" --tokenize none --force --width 2 --format text
