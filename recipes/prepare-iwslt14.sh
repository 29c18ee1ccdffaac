#!/usr/bin/env bash
# IWSLT 2014, German, Spanish or Romanian to English: text, joint BPE, fairseq's binary files.
#
#   recipes/prepare-iwslt14.sh de                             # from fairseq's mirror
#   FROM=/path/to/es-en.tgz recipes/prepare-iwslt14.sh es     # from a local copy
#
# Makes      $WORK/text, $WORK/bpe and $WORK/bin, made anew; $WORK/bin appears last, when it is complete
# Hardware   one CPU core, about 10 minutes, 300 MB of disk, 20 MB to download
# Expected   de: about 160,250 / 7,284 / 6,750 pairs in train / valid / test. fairseq's script gives 160,239 / 7,283 / 6,750
#            or 160,250 / 7,284 / 6,750, with the revision of Moses; here its port sacremoses 0.2.0 tokenises, which need
#            not agree with it on every line. es, ro: the paper gives no numbers
# Check      fairseq-preprocess prints the pairs
#
# As fairseq's prepare-iwslt14.sh: Moses' tokenisation, no pair longer than 175 tokens or of a ratio above 1.5, lower case,
# 10,000 BPE merges learned on both languages together. German: every 23rd pair is for validation, the test is dev2010,
# TEDX.dev2012 and tst2010 to tst2012, and there is one dictionary for both languages, as Liu et al. (2020) have it.
# Spanish and Romanian: dev2010 for validation, tst2010 to tst2012 for the test, two dictionaries; that their text is
# treated as the German one is our choice, the paper does not say.
#
# FROM    the archive of the pair, or its address. The page of the corpora, wit3.fbk.eu, is gone. German is on fairseq's
#         mirror. All pairs are in 2014-01.tgz, which circulates on Google Drive, as 2014-01/texts/es/en/es-en.tgz: unpack it
# SHA256  of the archive. None is published; without it the recipe prints that of the archive, and refuses a damaged one
# WORK    output folder
# MERGES  BPE merges; the default is 10000
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

(($# == 1)) || stop "needs one LANGUAGE; got $# arguments. Use de, es or ro."
source=$1
case $source in
    de) valid='' tests=(TED.dev2010 TEDX.dev2012 TED.tst2010 TED.tst2011 TED.tst2012) joined=(--joined-dictionary) ;;
    es | ro) valid=TED.dev2010 tests=(TED.tst2010 TED.tst2011 TED.tst2012) joined=() ;;
    *) stop "LANGUAGE: needs de, es or ro; got $source." ;;
esac
WORK=${WORK:-$RUNS/iwslt14-$source$of_work}
made_up "iwslt14-$source" "$source-en.tgz"
if [[ -z ${FROM:-} ]]; then
    [[ $source == de ]] || stop "FROM: needs the file $source-en.tgz, which no mirror has; got none. Use FROM=/path/to/$source-en.tgz."
    FROM=http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz
fi
merges=${MERGES:-${SMOKE:+200}} merges=${merges:-10000}

need python sacremoses subword-nmt fairseq-preprocess sha256sum
[[ $FROM != *://* ]] || need curl

text=$WORK/text
fetch "$FROM" "$RUNS/download/iwslt14" "${SHA256:-}"
begin_corpus "$WORK/raw" "$text" "$WORK/bpe" "$WORK/bin" "$WORK/bin.partial"
run mkdir -p "$text"
run python "$recipes/unpack.py" "$fetched" "$WORK/raw"
run python "$recipes/iwslt_text.py" "$WORK/raw/$source-en" "$source-en" "$text"
run rm -rf "$WORK/raw"

for language in "$source" en; do
    for split in train ${valid:+"$valid"} "${tests[@]}"; do
        run_from "$text/$split.$language" "$text/$split.tok.$language" sacremoses -q -l "$language" tokenize
    done
    tokenized=("${tests[@]/#/$text/}")
    run_to "$text/test.cased.$language" cat "${tokenized[@]/%/.tok.$language}"
done
clean=(python "$recipes/clean_pairs.py")
run "${clean[@]}" "$text/train.tok" "$text/train.clean" "$source" en --longest 175 --ratio 1.5 --lowercase
for language in "$source" en; do
    # The test set, and a separate validation set, keep all pairs.
    lowercase "$text/test.cased.$language" "$text/test.$language"
    if [[ $valid ]]; then
        lowercase "$text/$valid.tok.$language" "$text/valid.$language"
        run cp "$text/train.clean.$language" "$text/train.$language"
    else
        run_from "$text/train.clean.$language" "$text/valid.$language" awk 'NR % 23 == 0'
        run_from "$text/train.clean.$language" "$text/train.$language" awk 'NR % 23 != 0'
    fi
done

binarize "$source" "$merges" valid test "${joined[@]}"
