#!/usr/bin/env bash
# BLEU and speed of one trained Transformer on Multi30k, with fairseq-generate and with CTranslate2 in float32 and int8.
#
#   recipes/measure-export.sh METHOD             # rows, hardware, time: tables/export.json
#
# Expected   float32 gives fairseq's translations, except for ties that rounding breaks; int8 loses at most 0.2 BLEU
# Check      the last lines: for each engine tokens/s, the number of translations equal to fairseq's, and BLEU
#
# All three search alike: beam 5, scores divided by length, at least one word, batches of 2,000 words. Tokens/s are the
# programs' own figures for the search alone. The fastest of ROUNDS runs counts: other load only slows a program down.
# The model is that of train-liu-small.sh, which trains it where its score of the test set is missing (FROM: see there).
#
# ROUNDS    the default is 3
# SEED, UPDATES: liu.sh. BEAM, LENPEN: evaluate.sh. SMOKE, DRY_RUN, RUNS, PLUGIN: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/liu.sh"

need_row METHOD "$@"
method=$1
ROUNDS=${ROUNDS:-${SMOKE:+1}}
ROUNDS=${ROUNDS:-3}
[[ $ROUNDS =~ ^[1-9][0-9]*$ ]] || stop "ROUNDS: needs a number from 1 on; got $ROUNDS. Use 3."
WORK=${WORK:-$RUNS/multi30k$of_work}
folder=$WORK/transformer-$method-$SEED$training_variant
checkpoint=$folder/checkpoint_best.pt
reference=$WORK/text/test_2016_flickr.en

need python sacrebleu
[[ $DRY_RUN ]] || python -c 'import ctranslate2' 2>/dev/null ||
    stop "needs the package ctranslate2; got a Python without it. Use pip install ctranslate2."
[[ -f $folder/test.bleu ]] || WORK=$WORK SEED=$SEED "$recipes/train-liu-small.sh" multi30k "$method"
export BEAM=${BEAM:-5} LENPEN=${LENPEN:-1} GPUS=0 # as CTranslate2 does

# translate_by_fairseq: makes $folder/test.hyp, and adds fairseq-generate's speed to $folder/speed-fairseq.log.
translate_by_fairseq() {
    local evaluate=("$recipes/evaluate.sh" "$WORK/bin" "$checkpoint" test "$reference")
    if [[ $DRY_RUN ]]; then
        "${evaluate[@]}"
        return
    fi
    "${evaluate[@]}" 2>&1 | tee "$folder/fairseq.log"
    # It logs to stdout, which is evaluate.sh's test.log, or to stderr if an import has set up logging.
    grep --no-filename --only-matching 'Translated .*' "$folder/test.log" "$folder/fairseq.log" >>"$folder/speed-fairseq.log"
}

quantizations=(float32 int8)
for quantization in "${quantizations[@]}"; do
    run rm -rf "$folder/$quantization"
    run_tiedemb export "$checkpoint" "$folder/$quantization" --to ctranslate2 --quantization "$quantization" \
        --data "$WORK/bin"
done
run rm -f "$folder/speed-fairseq.log" "$folder/speed-float32.log" "$folder/speed-int8.log"
for ((round = 0; round < ROUNDS; round++)); do
    translate_by_fairseq
    for quantization in "${quantizations[@]}"; do
        run_shown "$folder/$quantization.log" python "$recipes/engine.py" "$folder/$quantization" \
            "$WORK/bpe/test_2016_flickr.de" "$folder/$quantization.hyp" --beam "$BEAM" --lenpen "$LENPEN"
        [[ $DRY_RUN ]] || cat "$folder/$quantization.log" >>"$folder/speed-$quantization.log"
    done
done
run cp "$folder/test.hyp" "$folder/fairseq.hyp"
for name in fairseq "${quantizations[@]}"; do
    run_shown "$folder/$name.bleu" \
        sacrebleu "$reference" --input "$folder/$name.hyp" --tokenize none --force --width 2 --format text
    [[ -z $DRY_RUN ]] || continue
    speed=$(sed -n 's/.*[ (]\([0-9.]*\) tokens\/s).*/\1/p' "$folder/speed-$name.log" | sort --numeric-sort | tail -n 1)
    same=$(paste -d '\n' "$folder/fairseq.hyp" "$folder/$name.hyp" |
        awk 'NR % 2 { first = $0; next } $0 == first { same++ } END { print same + 0 }')
    echo "$method, $name: $speed tokens/s, $same of $(wc -l <"$reference") translations as fairseq's"
    record export "$method,$name" --bleu "test=$folder/$name.bleu" --figure "speed=$speed" "same=$same"
done
