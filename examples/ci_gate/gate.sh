#!/usr/bin/env bash
# gate.sh RUNS OUTPUT [STORE [OPTION...]]: are all layouts of a program within bound of its reference?
#
# RUNS names the commands (see runs.txt). OUTPUT, which must be new, gets for every layout NAME:
# junit/NAME.xml for the CI server, NAME.txt, what was printed, and NAME/, traces and logs.
# STORE keeps the reference between calls; it is made where it is missing (default: OUTPUT/store).
# OPTIONs go to `ttrace check`. The environment variable TTRACE names the program.
#
# Exit code: 0 all within bounds; 1 a layout diverged; 2 none did, but one could not be compared.
set -uo pipefail

readonly TTRACE=${TTRACE:-ttrace}
fail() { printf 'gate.sh: %s\n' "$*" >&2; exit 2; }

(($# >= 2)) || fail "usage: gate.sh RUNS OUTPUT [STORE [OPTION...]]"
readonly runs=$1 output=$2 store=${3:-$2/store}
shift $(($# < 3 ? $# : 3))
command -v "$TTRACE" >/dev/null || fail "there is no program $TTRACE; set TTRACE to where it is"
[[ -r $runs ]] || fail "$runs cannot be read"
[[ ! -e $output ]] || fail "$output exists; name a new folder, so that no older result is taken for a new one"
mkdir -p "$output/junit" || exit 2

reference=""
names=() commands=()
while read -r name command; do
  case $name in
    "" | "#"*) ;;
    reference) reference=$command ;;
    *[!a-zA-Z0-9_-]*) fail "$runs: '$name' names a file; use letters, digits, - and _" ;;
    *) names+=("$name") commands+=("$command") ;;
  esac
done <"$runs"
[[ -n $reference ]] || fail "$runs has no line 'reference COMMAND'"
((${#names[@]})) || fail "$runs names no layout"

# make_reference: into STORE, whole or not at all. The reference is its own candidate: what does not even
# agree with itself must not judge others.
make_reference() {
  rm -rf "$store.new"
  "$TTRACE" check --reference "$reference" --candidate "$reference" -o "$store.new" "$@" \
    >"$output/reference.txt" 2>&1 || { cat "$output/reference.txt"; return 1; }
  rm -rf "$store" && mkdir -p "$(dirname "$store")" && mv "$store.new" "$store"
}

if [[ ! -e $store/reference/manifest.json ]]; then
  echo "making the reference $store"
  make_reference "$@" || fail "the reference is not to be relied on; see above"
fi

diverged=0 failed=0
summary=""
for i in "${!names[@]}"; do
  name=${names[i]}
  echo
  echo "== $name: ${commands[i]}"
  "$TTRACE" check --reference "$store/reference" --rerun "$reference" --candidate "${commands[i]}" \
    -o "$output/$name" --format text --format "junit=$output/junit/$name.xml" "$@" 2>&1 |
    tee "$output/$name.txt"
  code=${PIPESTATUS[0]}
  case $code in
    0) result="within bound" ;;
    1) diverged=1 result=$(sed -n 's/^first divergence: /DIVERGED at /p' "$output/$name.txt") ;;
    2) failed=1 result="COULD NOT BE COMPARED" ;;
    *) echo "gate.sh: ended by signal $((code - 128))" >&2; exit "$code" ;;
  esac
  summary+="$(printf '%-12s %s' "$name" "$result")"$'\n'
done

printf '\n== summary\n%s' "$summary"
if [[ -n ${GITHUB_STEP_SUMMARY:-} ]]; then
  # shellcheck disable=SC2016 # backticks of Markdown
  printf '```\n%s```\n' "$summary" >>"$GITHUB_STEP_SUMMARY"
fi
((diverged)) && exit 1
((failed)) && exit 2
exit 0
