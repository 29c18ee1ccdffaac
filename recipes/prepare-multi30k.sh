#!/usr/bin/env bash
# Multi30k task 1 (Elliott et al. 2016), German and English: text, joint BPE, fairseq's binary files.
#
#   recipes/prepare-multi30k.sh                          # from the mirror
#   FROM=/path/to/files recipes/prepare-multi30k.sh      # from a folder with train.de, train.en, val.de, ...
#
# Makes      $WORK/text, $WORK/bpe and $WORK/bin, made anew; $WORK/bin appears last, when it is complete
# Hardware   one CPU core, about 40 seconds, 20 MB of disk, 6 MB to download
# Expected   train, val and test_2016_flickr of 29000, 1014 and 1000 lines; a dictionary of 5984 types
# Check      the recipe checks the line counts; fairseq-preprocess prints the types
#
# FROM    a folder, or the address of one. The files are lower-cased, normalised and tokenised (Moses); their names are
#         those of the Multi30k repository, train.lc.norm.tok.de, or in a local folder just train.de
# MERGES  BPE merges, learned on both languages together, so that one dictionary can serve all three roles
# WORK    output folder
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

WORK=${WORK:-$RUNS/multi30k$of_work}
made_up multi30k
FROM=${FROM:-https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/tok}
MERGES=${MERGES:-${SMOKE:+200}}
MERGES=${MERGES:-6000}

# Counts from the README of the Multi30k repository.
splits=(train val test_2016_flickr)
declare -A lines=([train]=29000 [val]=1014 [test_2016_flickr]=1000)
declare -A smoke_lines=([train]=300 [val]=40 [test_2016_flickr]=40)

# find_source SPLIT LANGUAGE: sets $source to the file of $FROM.
find_source() {
    local published=$1.lc.norm.tok.$2
    if [[ $FROM == *://* ]]; then
        fetch "$FROM/$published" "$RUNS/download" ""
        source=$fetched
    elif [[ -f $FROM/$published ]]; then
        source=$FROM/$published
    else
        source=$FROM/$1.$2
        [[ -f $source || $DRY_RUN ]] || stop "FROM=$FROM: needs $published or $1.$2; found neither. Use another folder, or a mirror's URL."
    fi
}

# text_of SPLIT LANGUAGE SOURCE: makes $WORK/text/SPLIT.LANGUAGE.
text_of() {
    local target=$WORK/text/$1.$2 source=$3
    if [[ $SMOKE ]]; then
        run_to "$target" head -n "${smoke_lines[$1]}" "$source"
        need_lines "$target" "${smoke_lines[$1]}" "Use longer files."
    else
        run_to "$target" cat "$source"
        need_lines "$target" "${lines[$1]}" "Use the files of Multi30k task 1."
    fi
}

need subword-nmt fairseq-preprocess sha256sum
[[ $FROM != *://* ]] || need curl

declare -A sources
for split in "${splits[@]}"; do
    for language in de en; do
        find_source "$split" "$language"
        sources[$split.$language]=$source
    done
done
# fairseq-preprocess refuses to overwrite a dictionary.
begin_corpus "$WORK/text" "$WORK/bpe" "$WORK/bin" "$WORK/bin.partial"
run mkdir -p "$WORK/text"
for split in "${splits[@]}"; do
    for language in de en; do
        text_of "$split" "$language" "${sources[$split.$language]}"
    done
done
binarize de "$MERGES" val test_2016_flickr --joined-dictionary
