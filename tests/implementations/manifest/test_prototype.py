import pytest

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.operation import CType
from gradcheck.implementations.manifest.prototype import declarations, parse

WHERE = "gradcheck.toml, op 3 (rms_norm): vjp"


def types(text):
    """The C types of a prototype's parameters, by name."""
    return {p.name: p.ctype for p in parse(text, WHERE).parameters}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the prototype is empty"),
        ("  ; ", "the prototype is empty"),
        ("int x", "declares no function"),
        ("typedef int (*callback)(int)", "declares no function"),
        ("f(int x)", "is no C prototype"),
        ("void f(((", "is no C prototype"),
        ("void f(int x); void g(int y)", "write one function in one string"),
        ("void f(int x) { return; }", "no function"),
        ("void f(std::vector<float>& x)", "is no C prototype"),
        ("void f(int, float*)", "parameter 1 has no name"),
        ("void f(int n, float*)", "parameter 2 has no name"),
        ("void f(int a, float* a)", "two parameters called `a`"),
        ("void f(float** x)", "`x` is a pointer to a pointer"),
        ("void f(float* x[])", "`x` is a pointer to a pointer"),
        ("void f(void (*call)(int))", "`call` is a function pointer"),
        ("void f(int n, ...)", "takes `...`"),
        ("void f(struct shape s)", "`s` is a struct by value"),
        ("void f(union u s)", "`s` is a union by value"),
        ("void f(shape s)", "`s` is `shape` by value"),
        ("myint f(int n)", "returns `myint` by value"),
        ("void f(long double x)", "`long double`, which cannot be passed"),
        ("void f(long double* x)", "`long double`, which cannot be passed"),
        ("long double f(int n)", "`long double`, which cannot be passed"),
        ("void f(float _Complex* x)", "`float _Complex`, which cannot be passed"),
        ("void f(void x, int n)", "`x` is void"),
        ("void f(int n" + ", int n" * 3_000 + ")", "characters"),
    ],
)
def test_what_is_no_prototype_is_refused_with_the_place_and_what_to_do(text, message):
    with pytest.raises(ManifestError) as caught:
        parse(text, WHERE)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{WHERE}: ")


def test_the_word_at_which_reading_stopped_is_named():
    with pytest.raises(ManifestError, match="trouble near `&`"):
        parse("void f(float& x)", WHERE)


@pytest.mark.parametrize(
    ("ctype", "base"),
    [
        ("int", "int32"), ("signed", "int32"), ("unsigned", "uint32"), ("unsigned int", "uint32"),
        ("short", "int16"), ("short int", "int16"), ("unsigned short", "uint16"),
        ("long", "int64"), ("long int", "int64"), ("unsigned long", "uint64"),
        ("long unsigned int", "uint64"), ("long long", "int64"), ("long long int", "int64"),
        ("unsigned long long", "uint64"), ("size_t", "uint64"), ("ssize_t", "int64"),
        ("ptrdiff_t", "int64"), ("int8_t", "int8"), ("uint8_t", "uint8"), ("int16_t", "int16"),
        ("uint16_t", "uint16"), ("int32_t", "int32"), ("uint32_t", "uint32"),
        ("int64_t", "int64"), ("uint64_t", "uint64"), ("float", "float32"), ("double", "float64"),
        ("bool", "bool"), ("_Bool", "bool"), ("enum order", "int32"), ("char", "int8"),
        ("signed char", "int8"), ("unsigned char", "uint8"),
    ],
)  # fmt: skip
def test_scalars_by_value(ctype, base):
    assert types(f"void f({ctype} n)") == {"n": CType(base=base)}


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize(
    ("declared", "ctype"),
    [
        ("float* x", CType(base="float32", pointer=1)),
        ("const float *x", CType(base="float32", pointer=1, const=True)),
        ("float const *x", CType(base="float32", pointer=1, const=True)),
        ("float* const x", CType(base="float32", pointer=1)),
        ("const float* restrict x", CType(base="float32", pointer=1, const=True)),
        ("float *__restrict__ x", CType(base="float32", pointer=1)),
        ("float *__restrict x", CType(base="float32", pointer=1)),
        ("volatile double* x", CType(base="float64", pointer=1)),
        ("float x[]", CType(base="float32", pointer=1)),
        ("const int64_t x[4]", CType(base="int64", pointer=1, const=True)),
        ("float x[static 4]", CType(base="float32", pointer=1)),
        ("float x[][4]", CType(base="float32", pointer=1)),
        ("float (*x)[4]", CType(base="float32", pointer=1)),
        ("void* x", CType(base="void", pointer=1)),
        ("const void *x", CType(base="void", pointer=1, const=True)),
        ("const char* x", CType(base="char", pointer=1, const=True)),
        ("char* x", CType(base="char", pointer=1)),
        ("unsigned char* x", CType(base="uint8", pointer=1)),
        ("ctx* x", CType(base="opaque", pointer=1)),
        ("const ctx *x", CType(base="opaque", pointer=1, const=True)),
        ("struct ctx* x", CType(base="opaque", pointer=1)),
        ("floatX* restrict x", CType(base="opaque", pointer=1)),
        ("_Float16* x", CType(base="uint16", pointer=1)),
    ],
)
def test_pointers_and_arrays(declared, ctype):
    assert types(f"void f({declared})") == {"x": ctype}


@pytest.mark.parametrize(
    "text",
    [
        "float f(float x);",
        'extern "C" float f(float x);',
        "extern float f(float x)",
        "static inline float f(float x)",
        "float f(float x) noexcept;",
        "MYLIB_API float f(float x)",
        '__attribute__((visibility("default"))) float f(float x)',
        "float f(float x) __attribute__((nonnull(1), pure));",
        "[[nodiscard]] float f(float x)",
        "__declspec(dllexport) float f(float x)",
        "float /* the slope */ f(float x) // of one element",
        "float\nf(\n  float x\n)",
        "float f(float x);;",
    ],
)
def test_what_surrounds_a_declaration_in_a_header_is_ignored(text):
    prototype = parse(text, WHERE)
    assert prototype.symbol == "f"
    assert prototype.returns == CType(base="float32")
    assert [p.name for p in prototype.parameters] == ["x"]
    assert prototype.text == text


def test_a_macro_in_front_of_an_opaque_result():
    prototype = parse("MYLIB_API ctx* ctx_new(int n)", WHERE)
    assert prototype.returns == CType(base="opaque", pointer=1)


@pytest.mark.parametrize("text", ["int f(void)", "int f()"])
def test_a_function_without_parameters(text):
    assert parse(text, WHERE).parameters == ()


def test_a_name_is_lent_where_one_is_not_needed():
    prototype = parse("void ctx_free(ctx*)", WHERE, unnamed="handle")
    assert [p.name for p in prototype.parameters] == ["handle"]


def test_parameters_keep_their_order():
    assert [*types("void f(float* dx, const float* x, int n)")] == ["dx", "x", "n"]


HEADER = """
#ifndef KERNELS_H
#define CALL(f) \\
    f(int x)
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/* void commented(int x); */
typedef struct { int n; } shape;
typedef void (*callback)(int);
enum order { ROW, COLUMN };
static inline int helper(int x) { if (x) { return f(x); } return 0; }
void first(float* dx,
           const float* dy,   // incoming
           int n);
KERNELS_API int second(shape* s);
int third(void) { return 3; }
extern int counter;
#ifdef __cplusplus
}
#endif
#endif
"""


def test_the_prototypes_of_a_header_are_found_among_everything_else():
    assert [parse(text, "kernels.h").symbol for text in declarations(HEADER)] == [
        "first", "second", "third",
    ]  # fmt: skip
