#!/usr/bin/env bash
# Tatoeba (CC BY 2.0), German, Spanish, French or Romanian to English: text, joint BPE, fairseq's binary files.
#
#   FROM=/path/to/deu-eng.zip recipes/prepare-tatoeba.sh de
#
# Makes      $WORK/text, $WORK/bpe and $WORK/bin, made anew; $WORK/bin appears last, when it is complete
# Hardware   one CPU core, about a minute, 60 MB of disk
# Expected   of 169,197 pairs with 134,922 English sentences: train, valid and test of 163,539, 2,000 and 2,000 pairs.
#            The corpus grows, and old editions are not archived: another edition has other pairs and scores
# Check      fairseq-preprocess prints the pairs
#
# Tatoeba's sentences are short, and many have several translations: tatoeba_text.py splits them by English sentence.
# Moses' tokenisation (sacremoses), lower case, BPE learned on both languages together, one dictionary.
#
# FROM     the pairs, English first, a TAB between: a text, gzip or zip, or its address. ManyThings.org has deu-eng.zip,
#          spa-eng.zip, fra-eng.zip and ron-eng.zip at www.manythings.org/anki, made of Tatoeba's
# SHA256   of that file; without it the recipe prints that of the file
# MERGES   BPE merges
# WORK     output folder
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

(($# == 1)) || stop "needs one LANGUAGE; got $# arguments. Use de, es, fr or ro."
source=$1
case $source in
    de | es | fr | ro) ;;
    *) stop "LANGUAGE: needs de, es, fr or ro; got $source." ;;
esac
WORK=${WORK:-$RUNS/tatoeba-$source$of_work}
made_up tatoeba pairs.zip
[[ ${FROM:-} ]] || stop "FROM: needs a file of sentence pairs; got none. Use FROM=/path/to/deu-eng.zip of www.manythings.org/anki, say."
if [[ $SMOKE ]]; then
    held_out=20 MERGES=${MERGES:-200}
else
    held_out=2000 MERGES=${MERGES:-8000}
fi

need python sacremoses subword-nmt fairseq-preprocess sha256sum
[[ $FROM != *://* ]] || need curl

text=$WORK/text
fetch "$FROM" "$RUNS/download" "${SHA256:-}"
# fairseq-preprocess refuses to overwrite a dictionary.
begin_corpus "$text" "$WORK/bpe" "$WORK/bin" "$WORK/bin.partial"
run mkdir -p "$text/raw"
run python "$recipes/tatoeba_text.py" "$fetched" "$source" "$text/raw" --held-out "$held_out"
for split in train valid test; do
    for language in "$source" en; do
        run_from "$text/raw/$split.$language" "$text/$split.cased.$language" sacremoses -q -l "$language" tokenize
        lowercase "$text/$split.cased.$language" "$text/$split.$language"
    done
done

binarize "$source" "$MERGES" valid test --joined-dictionary
