#!/bin/sh
# GRADCHECK/1 at level `oneshot`, in a shell: od reads numbers, awk computes, printf writes them.
# float64 alone. Copy this file, and put your own operators where the two are.
set -e
cd "$1"

fact() { awk -v key="$1" '$1 == key { print $2 }' meta.txt; }

lacks() {
    echo "no $*" >&2
    exit 3
}

case $(fact ask) in
vjp) factor=cotangent.0.bin result=gradient.x.bin formula='c * slope' ;;
forward) factor=input.x.bin result=output.0.bin formula='y' ;;
*) lacks "$(fact ask)" ;;
esac

case $(fact op) in
sqr) operator='y = x * x; slope = 2 * x' ;;
silu) operator='s = 1 / (1 + exp(-x)); y = x * s; slope = s' ;; # WRONG, for show: lacks y (1 - s)
*) lacks "$(fact op)" ;;
esac

[ "$(fact dtype)" = float64 ] || lacks "$(fact dtype)"

bytes_of() { awk -v file="$1" '
    $1 "." $2 ".bin" == file { n = 8; for (i = 4; i <= NF; i++) n *= $i; print n }' meta.txt; }

numbers() { # of an array, one on each line
    [ "$(wc -c < "$1")" -eq "$(bytes_of "$1")" ] || { echo "$1 is not whole" >&2; exit 1; }
    od -An -v -t f8 -w8 "$1"
}

# The bytes of a double, little-endian, as octal escapes: sign, 11 bits of exponent, 52 of fraction.
encode='
function bytes(v,    sign, e, f, i, text) {
    sign = v < 0 ? 128 : 0
    if (sign) v = -v
    for (e = 1023; v >= 2 && e < 2047; e++) v /= 2
    for (; v < 1 && e > 1; e--) v *= 2
    if (v < 1) e = 0 # zero, or subnormal
    f = (e == 2047 ? 0 : v - (e > 0)) * 2 ^ 52
    for (i = 0; i < 6; i++) { text = text sprintf("\\%03o", f % 256); f = int(f / 256) }
    return text sprintf("\\%03o\\%03o", e % 16 * 16 + f, sign + int(e / 16))
}'

numbers input.x.bin > x.txt
numbers "$factor" > factor.txt
escapes=$(paste x.txt factor.txt |
    awk "$encode { x = \$1 + 0; c = \$2 + 0; $operator; printf \"%s\", bytes($formula) }")
printf "$escapes" > "$result"
