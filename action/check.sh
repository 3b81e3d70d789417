#!/usr/bin/env bash
# Runs gradcheck as the inputs of the action say. They come as variables, and become words of a
# command one by one: no text of anybody's is ever read by a shell.
set -euo pipefail
shopt -s nullglob globstar

reports=$(mktemp -d "$RUNNER_TEMP/gradcheck.XXXXXX")
words=()

# The lines of a text that hold anything, without the blanks around them: into `lines`.
split() {
  local line
  lines=()
  while IFS= read -r line || [ -n "$line" ]; do
    line=${line#"${line%%[![:space:]]*}"}
    line=${line%"${line##*[![:space:]]}"}
    if [ -n "$line" ]; then lines+=("$line"); fi
  done <<<"$1"
}

# A flag for each line of a text. The equals sign lets a value begin with a minus.
add() {
  local line
  split "$2"
  for line in ${lines[@]+"${lines[@]}"}; do words+=("$1=$line"); done
}

# The files that a glob matches, into `files`; a blank in it is no end of a word.
match() {
  local IFS=
  files+=($1)
}

if [ -n "$MERGE" ]; then
  verb=merge
  files=()
  split "$MERGE"
  for pattern in ${lines[@]+"${lines[@]}"}; do match "$pattern"; done
  if [ "${#files[@]}" = 0 ]; then
    echo "::error title=gradcheck::no log matches the input merge"
    echo "**gradcheck: no log matches the input merge**" >>"$GITHUB_STEP_SUMMARY"
    echo "exit-code=2" >>"$GITHUB_OUTPUT"
    exit 2
  fi
else
  verb=run
  add --impl "$IMPLEMENTATIONS"
  add --op "$OPERATORS"
  add --dtype "$DTYPES"
  add --shard "$SHARD"
fi
add --baseline "$BASELINE"
split "$ARGS"
words+=(${lines[@]+"${lines[@]}"})
if [ "$verb" = merge ]; then words+=(-- "${files[@]}"); fi

# What the code judged prints is no command to the job.
token=$(python -c 'import secrets; print(secrets.token_hex(16))')
echo "::stop-commands::$token"
code=0
gradcheck "$verb" \
  -o "$reports/report.html" \
  -o "$reports/junit.xml" \
  -o "$reports/run.jsonl" \
  -o "$reports/badge.json:badge" \
  -o "$reports/summary.md:summary" \
  -o "$reports/annotations.txt:github" \
  ${words[@]+"${words[@]}"} || code=$?
echo
echo "::$token::"

# Files are named as seen from the folder where gradcheck ran; the job wants them from its own.
prefix=${FOLDER#./}
prefix=${prefix%/}
prefix=${prefix//%/%25}
prefix=${prefix//:/%3A}
prefix=${prefix//,/%2C}
if [ -f "$reports/annotations.txt" ]; then
  while IFS= read -r line; do
    case $line in
      "::"*" file="*)
        if [ -n "$prefix" ] && [ "$prefix" != . ]; then line=${line/ file=/ file=$prefix/}; fi
        echo "$line" ;;
      "::"*) echo "$line" ;;
      RESULT*) echo "result=$line" >>"$GITHUB_OUTPUT" ;;
    esac
  done <"$reports/annotations.txt"
  cat "$reports/summary.md" >>"$GITHUB_STEP_SUMMARY"
else
  echo "**gradcheck: there is no report** (exit code $code; the log says why)" >>"$GITHUB_STEP_SUMMARY"
fi
echo "exit-code=$code" >>"$GITHUB_OUTPUT"
echo "reports=$reports" >>"$GITHUB_OUTPUT"

# A gate that is closed is no failure of the step where a later job judges the whole.
if [ "$GATE" = false ] && [ "$code" = 1 ]; then code=0; fi
exit "$code"
