"""The functions that exported C programs share; words in capitals are filled in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_letters, digits
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import UsageError
from gradcheck.implementations.manifest.operation import CType, Prototype
from gradcheck.report.scripts.pieces import WIDTH, wrapped

HOLE: Final = re.compile(r"\b(?:GUARDS|START|NEAREST|RTOL|NAME|FIRST|STEP|COUNT)\b")


def filled(piece: str, **words: str) -> str:
    """A piece, with what its words in capitals stand for; nothing is filled in twice.

    Raises:
        KeyError: one is not given.
    """
    return HOLE.sub(lambda word: words[word[0].lower()], piece)


HEADERS: Final = """\
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
"""

MEMORY: Final = """\
/* `size` bytes between pages that may not be touched: copied from `from`, or else all `byte`. */
static void *gc_memory(const void *from, int byte, size_t size, size_t align, int read_only)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size + align + page - 1) / page * page;
    char *base = mmap(NULL, room + 2 * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    char *inside = base + page, *at = inside + START;
    if (from != NULL)
        memcpy(at, from, size);
    else
        memset(at, byte, size);
    if (read_only)
        mprotect(inside, room, PROT_READ);
GUARDS    return at;
}
"""
AT_END: Final = "(room - size) / align * align"
AT_START: Final = "0"
GUARDS: Final = """\
    mprotect(base, page, PROT_NONE);
    mprotect(inside + room, page, PROT_NONE);
"""

HALF: Final = {
    "bfloat16": """\
/* The number whose bits these are. */
static double gc_half(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float number;
    memcpy(&number, &wide, sizeof number);
    return number;
}
""",
    "float16": """\
/* The number whose bits these are. */
static double gc_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double number = exponent ? 1024 + (bits & 1023) : bits & 1023, one = 1;
    if (exponent == 31)
        number = bits & 1023 ? __builtin_nan("") : __builtin_inf();
    for (int k = exponent ? exponent : 1; k < 25 && exponent < 31; k++)
        one /= 2;
    for (int k = 25; k < exponent && exponent < 31; k++)
        one *= 2;
    return (bits >> 15 ? -number : number) * one;
}
""",
}

COMPARE: Final = """\
static double gc_size(double x)
{
    return x < 0 ? -x : x;
}

static double gc_nearest(double got, size_t i)
{
    return NEAREST;
}

static double gc_limit(double got, size_t i)
{
    double size = gc_size(gc_want[i]) <= 1.7976931348623157e308 ? gc_size(gc_want[i]) : 0;
    return gc_room[i] + RTOL * (gc_size(got) > size ? gc_size(got) : size);
}

/* Error over what is allowed: more than 1 is wrong, and so is what is no number. */
static double gc_excess(double got, size_t i)
{
    double error = gc_size(got - gc_nearest(got, i));
    if (got == gc_nearest(got, i))
        return 0;
    return error == error ? error / gc_limit(got, i) : __builtin_inf();
}

static void gc_row(const double *got, size_t i)
{
    char index[128] = "()";
    size_t used = 0, rest = i, step = GC_SIZE;
    for (int axis = 0; axis < GC_AXES; axis++) {
        step /= gc_shape[axis];
        used += (size_t)snprintf(index + used, used < sizeof index ? sizeof index - used : 0,
                                 axis ? ", %zu" : "%zu", rest / step);
        rest %= step;
    }
    double right = gc_nearest(got[i], i);
    printf("%16s  %20.12g  %20.12g  %8.2g  %8.2g  %8.2g%s\\n", index, got[i], right, gc_bar[i],
           gc_size(got[i] - right), gc_limit(got[i], i),
           gc_excess(got[i], i) <= 1 ? "" : "  WRONG");
}

/* The 20 worst elements as a table; returns how many of all are wrong. */
static size_t gc_compare(const double *got, size_t *worst)
{
    static char shown[GC_SIZE];
    size_t wrong = 0;
    for (size_t i = 0; i < GC_SIZE; i++)
        wrong += !(gc_excess(got[i], i) <= 1);
    printf("%16s  %20s  %20s  %8s  %8s  %8s\\n", "index", "got", "want", "bar", "error", "allowed");
    for (size_t row = 0; row < 20 && row < GC_SIZE; row++) {
        size_t next = GC_SIZE;
        for (size_t i = 0; i < GC_SIZE; i++)
            if (!shown[i] && (next == GC_SIZE || gc_excess(got[i], i) > gc_excess(got[next], next)))
                next = i;
        shown[next] = 1;
        *worst = row ? *worst : next;
        gc_row(got, next);
    }
    return wrong;
}
"""

MAIN: Final = """\
static int gc_judged;

/* What calls exit() with whatever status has not agreed. */
static void gc_left(void)
{
    if (gc_judged)
        return;
    fflush(stdout);
    fputs("WRONG: the code ended the process\\n", stderr);
    _exit(1);
}

int main(void)
{
    static double got[GC_SIZE], again[GC_SIZE];
    size_t worst = 0;
    atexit(gc_left);
    if (gc_gradient(got) || gc_gradient(again)) {
        gc_judged = 1;
        return 1;
    }
    if (memcmp(got, again, sizeof got) != 0) {
        gc_judged = 1;
        printf("WRONG: called twice, the code gives two gradients of %s\\n", NAME);
        return 1;
    }
    size_t wrong = gc_compare(got, &worst);
FIRST    gc_judged = 1;
    if (wrong)
        printf("\\nWRONG: %zu of %d elements of d%s\\n", wrong, GC_SIZE, NAME);
    else
        printf("\\nRIGHT: all %d elements of d%s agree\\n", GC_SIZE, NAME);
    return wrong != 0;
}
"""
TOGETHER: Final = """\
    for (size_t k = 0; k < COUNT; k++) {
        double slope = 0, blur = 0;
        for (size_t i = 0; i < GC_SIZE; i++) {
            slope += gc_along[k * GC_SIZE + i] * got[i];
            blur += gc_size(gc_along[k * GC_SIZE + i]) * gc_limit(got[i], i);
        }
        if (slope >= gc_least[k] - blur && slope <= gc_most[k] + blur)
            continue;
        printf("\\nWRONG: the elements on a kink do not go together\\n");
        gc_judged = 1;
        return 1;
    }
"""
MOVED: Final = """\
    double ends[2], at[2];
    if (gc_forward(worst, STEP, &at[0], &ends[0]) == 0
        && gc_forward(worst, -STEP, &at[1], &ends[1]) == 0)
        printf("\\nThe library's own forward, differenced at the first of them: %.6g, with a step"
               " of %g\\n", (ends[0] - ends[1]) / (at[0] - at[1]), STEP);
"""


Array = NDArray[Any]

TYPES: Final = {"float32": "float", "float64": "double", "bool": "_Bool", "char": "char",
                "void": "void", "opaque": "void"}  # fmt: skip
"""C's names of types, where they are not those of <stdint.h>."""
SUFFIX: Final = {"float32": "f", "int64": "LL", "uint64": "ULL", "uint32": "U"}
PLAIN: Final = frozenset(f"{ascii_letters}{digits} _-.,:;=+()[]{{}}<>/'!#$&*@^|~%")
"""Characters that stand for themselves in a string."""
SMALLEST: Final = -(2**63)


def named(base: str) -> str:
    """The C type that `base` is."""
    return TYPES.get(base, f"{base}_t")


def number(value: Any, base: str) -> str:
    """One number as a literal of the C type that `base` names."""
    if base in ("float32", "float64"):
        scalar = np.dtype(base).type(value)
        if not np.isfinite(scalar):
            text = '__builtin_nan("")' if np.isnan(scalar) else "__builtin_inf()"
            return f"-{text}" if scalar < 0 else text
        text = str(scalar)
        return (text if re.search(r"[.e]", text) else f"{text}.0") + SUFFIX.get(base, "")
    whole = int(value)
    if whole == SMALLEST:
        return f"(-{-(whole + 1)}LL - 1)"
    return f"{whole}{SUFFIX.get(base, '')}"


def array(name: str, values: Array, base: str) -> str:
    """A constant array."""
    words = [number(v, base) for v in values.reshape(-1)]
    lead = f"static const {named(base)} {name}[] = {{"
    line = f"{lead}{', '.join(words)}}};"
    if len(line) <= WIDTH:
        return line
    return f"{lead}\n{wrapped(words, '    ', WIDTH)}\n}};"


def string(text: bytes) -> str:
    """A string literal, whatever it holds: no quote, escape or trigraph of its own."""
    plain = (chr(b) if chr(b) in PLAIN else f"\\{b:03o}" for b in text)
    return f'"{"".join(plain)}"'


def declaration(prototype: Prototype) -> str:
    """The function as declared, without the names of its parameters."""
    if not re.fullmatch(r"[A-Za-z_]\w*", prototype.symbol, re.ASCII):
        raise UsageError(f"--export: {prototype.symbol!r} is no name of a C function")
    parameters = ", ".join(typed(p.ctype) for p in prototype.parameters) or "void"
    return f"extern {typed(prototype.returns)} {prototype.symbol}({parameters});"


def typed(ctype: CType) -> str:
    """A type as C writes it."""
    const = "const " if ctype.const else ""
    return f"{const}{named(ctype.base)}{' ' + '*' * ctype.pointer if ctype.pointer else ''}"


def sizes(name: str, values: Sequence[int]) -> str:
    """A constant array of sizes; C has none without elements."""
    return f"static const size_t {name}[] = {{{', '.join(map(str, values)) or '1'}}};"
