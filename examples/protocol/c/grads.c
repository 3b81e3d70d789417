/* GRADCHECK/1 at level `frames`, in C99 and POSIX, for 64 bits, little-endian: cc -O2 grads.c -lm
   Copy this file, keep part 1, put your own operators into part 2. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ── part 1: frames and the conversation ── */
enum { RANK = 16, ARRAYS = 16, DEPTH = 64, HEADER_MAX = 1 << 24 };
static const size_t MAX = (size_t)1 << 36;
static const char MAGIC[] = "GRDC\r\n\x1a\n", LACKING[] = "no such operator, or not in this dtype";

typedef const char *Text; /* JSON as it is written; NULL: there is none */
typedef struct {          /* numbers in C order: float, double or int64_t; `block` is JSON */
    Text block, name;
    size_t rank, shape[RANK], count, width;
    void *data;
} Array;
static Array in[ARRAYS], out[ARRAYS]; /* one request: operators `find` arrays, and `give` others */
static size_t given, made, backward;
static Text attrs; /* a JSON object */
static Text space(Text p) { return p + strspn(p, " \t\r\n"); }
static Text value_end(Text p, int depth) { /* where a value ends; NULL: it is none */
    size_t n = strspn(p, "-+.eE0123456789");
    char close = *p == '{' ? '}' : ']', *end;
    if (n) return strtod(p, &end), end == p + n ? end : NULL;
    if (!strncmp(p, "true", 4) || !strncmp(p, "null", 4)) return p + 4;
    if (!strncmp(p, "false", 5)) return p + 5;
    if (*p == '"') {
        for (p++; *p != '"'; p++)
            if (!(*p & 0xe0) || (*p == '\\' && (!*++p || !strchr("\"\\/bfnrtu", *p)))) return NULL;
        return p + 1;
    }
    if ((*p != '{' && *p != '[') || !depth) return NULL;
    if (*(p = space(p + 1)) == close) return p + 1;
    for (int key = close == '}';; key = close == '}' && !key, p = space(p + 1)) {
        if ((key && *p != '"') || !(p = value_end(p, depth - 1))) return NULL;
        if (*(p = space(p)) == close && !key) return p + 1;
        if (*p != (key ? ':' : ',')) return NULL;
    }
}
static Text first(Text p, char open) { /* item of a list '[' or an object '{' */
    return p && *p == open && *(p = space(p + 1)) != open + 2 ? p : NULL;
}
static Text next(Text p) { return *(p = space(value_end(p, DEPTH))) == ',' ? space(p + 1) : NULL; }

static int is(Text p, const char *word) { /* names are compared as they are written */
    return p && *p == '"' && !strncmp(p + 1, word, strlen(word)) && p[strlen(word) + 1] == '"';
}
static size_t whole(Text p) { /* SIZE_MAX: it is no whole number */
    size_t n = p ? strspn(p, "0123456789") : 0;
    return n && n < 18 && !strchr(".eE", p[n]) ? strtoull(p, NULL, 10) : SIZE_MAX;
}
static Text member(Text object, const char *key) {
    Text found = NULL;
    for (Text p = first(object, '{'); p; p = next(p)) {
        int same = is(p, key);
        p = space(space(value_end(p, 0)) + 1);
        found = same ? p : found;
    }
    return found;
}
static Array *find(const char *role, const char *name) {
    for (Array *a = in; a < in + given; a++)
        if (is(member(a->block, "role"), role) && is(member(a->block, "name"), name)) return a;
    return NULL;
}
static Array *give(const char *name, const Array *like) { /* zeros in the same shape and dtype */
    Array *a = memcpy(&out[made++], like, sizeof *like);
    a->name = name;
    if (!(a->data = calloc(a->count + 1, a->width))) abort();
    return a;
}

static const char *unpack(Text blocks, char *payload, size_t size) {
    for (Text p = first(blocks, '['); p; p = next(p), given++) {
        size_t at = whole(member(p, "offset")), bytes = whole(member(p, "nbytes")), n;
        Text dtype = member(p, "dtype"), shape = member(p, "shape");
        Array *a = &in[given];
        if (given == ARRAYS || !shape || *shape != '[') return "too many blocks, or no shape";
        *a = (Array){.block = p, .count = 1, .width = is(dtype, "float32") ? 4 : 8};
        if (a->width == 8 && !is(dtype, "float64") && !is(dtype, "int64")) return LACKING;
        for (shape = first(shape, '['); shape; shape = next(shape), a->count *= n) {
            n = whole(shape);
            if (n > MAX || a->rank == RANK || a->count > MAX / (n + !n)) return "no shape for us";
            a->shape[a->rank++] = n;
        }
        if (at % 8 || at > size || bytes > size - at || bytes != a->count * a->width)
            return "a block lies outside of the payload, or does not fill its shape";
        a->data = payload + at;
    }
    return NULL;
}

static void send(FILE *sink, const char *said, Text seq) {
    char *head, zeros[64] = "";
    size_t size, bytes, at = 0;
    FILE *f = open_memstream(&head, &size);
    fprintf(f, "{%s,\"seq\":%.*s,\"blocks\":[", said, (int)(value_end(seq, DEPTH) - seq), seq);
    for (Array *a = out; a < out + made; a++, at += (bytes + 63) / 64 * 64) {
        Text shape = member(a->block, "shape"), role = backward ? "gradient" : "output";
        fprintf(f, "%s{\"role\":\"%s\",\"name\":\"%s\",\"dtype\":\"float%zu\",\"shape\":%.*s,"
                "\"offset\":%zu,\"nbytes\":%zu}", a == out ? "" : ",", role, a->name, 8 * a->width,
                (int)(value_end(shape, 1) - shape), shape, at, bytes = a->count * a->width);
    }
    fputs("]}", f), fclose(f);
    fwrite(MAGIC, 8, 1, sink), fwrite(&size, 4, 1, sink), fwrite(&at, 8, 1, sink);
    fwrite(head, 1, size, sink), free(head);
    for (Array *a = out; a < out + made; fwrite(zeros, 1, -bytes % 64, sink), free(a++->data))
        fwrite(a->data, 1, bytes = a->count * a->width, sink);
    fflush(sink), made = 0;
}

static char *exactly(size_t count) { /* NUL-ended; NULL: the input ends before */
    char *data = malloc(count + 1);
    if (data && fread(data, 1, count, stdin) != count) free(data), data = NULL;
    return data ? data[count] = 0, data : NULL;
}

static int serve(const char *about, const char *(*call)(Text op)) {
    FILE *sink = fdopen(dup(1), "wb");
    char prefix[20], said[256], *text, *payload;
    size_t got, size, head_size = 0;
    dup2(2, 1); /* what an operator prints is no frame */
    for (; (got = fread(prefix, 1, 20, stdin)) == 20; free(text), free(payload)) {
        memcpy(&head_size, prefix + 8, 4), memcpy(&size, prefix + 12, 8);
        if (memcmp(prefix, MAGIC, 8) || head_size > HEADER_MAX || size > MAX) break;
        if (!(text = exactly(head_size)) || !(payload = exactly(size))) break;
        Text top = space(text), end = value_end(top, DEPTH), wrong = NULL;
        if (*top != '{' || !end || space(end) != text + head_size) break;
        Text kind = member(top, "kind"), ask = member(top, "ask"), seq = member(top, "seq");
        int run = is(kind, "run"), ping = is(kind, "ping"), hello = is(kind, "hello");
        if (is(kind, "bye")) return 0;
        given = 0, attrs = member(top, "attrs"), backward = is(ask, "vjp");
        if (!run && !ping && !hello && !is(kind, "reset")) wrong = "no such kind of message";
        if (run && !backward && !is(ask, "forward")) wrong = LACKING;
        if (run && !wrong) wrong = unpack(member(top, "blocks"), payload, size);
        if (run && !wrong) wrong = call(member(top, "op"));
        while (wrong && made) free(out[--made].data);
        snprintf(said, 256, wrong == LACKING ? "\"kind\":\"unsupported\",\"reason\":\"%s\""
                 : wrong ? "\"kind\":\"error\",\"message\":\"%s\"" : "\"kind\":\"%s\"",
                 wrong ? wrong : run ? "result" : ping ? "pong" : "done");
        send(sink, hello ? about : said, seq ? seq : "null");
    }
    if (got) send(sink, "\"kind\":\"error\",\"message\":\"what arrived is no frame\"", "null");
    return got != 0;
}

/* ── part 2: the operators; each returns NULL, or says what is wrong ── */
#define GET(a, i) ((a)->width == 4 ? ((float *)(a)->data)[i] : ((double *)(a)->data)[i])
static void add(Array *a, size_t i, double value) {
    if (a->width == 4) ((float *)a->data)[i] += (float)value;
    else ((double *)a->data)[i] += value;
}

static const char *rms_norm(Array *x, Array *ct, Array *w) {
    Text eps = member(attrs, "eps"), offset = member(attrs, "unit_offset");
    size_t d = x->rank ? x->shape[x->rank - 1] : 0;
    if (!eps || !offset || !x->rank || (w && w->count != d)) return "no eps, no rows, or another w";
    Array *y = give(backward ? "x" : "0", x), *dw = backward && w ? give("w", w) : NULL;
    for (size_t i = 0; i < x->count; i += d) {
        double square = strtod(eps, NULL), mean = 0;
        for (size_t j = i; j < i + d; j++) square += GET(x, j) * GET(x, j) / d;
        for (size_t pass = 0; pass <= backward; pass++) /* backward: first the mean, then dx */
            for (size_t j = 0; j < d; j++) {
                double gain = w ? GET(w, j) + (*offset == 't') : 1;
                double r = 1 / sqrt(square), n = r * GET(x, i + j);
                if (!backward) add(y, i + j, n * gain);
                else if (!pass) mean += GET(ct, i + j) * gain * n / d;
                else add(y, i + j, r * (GET(ct, i + j) * gain - n * mean));
                if (pass && dw) add(dw, j, GET(ct, i + j) * n);
            }
    }
    return NULL;
}

static const char *silu(Array *x, Array *ct) {
    Array *y = give(backward ? "x" : "0", x);
    for (size_t i = 0; i < x->count; i++) {
        double s = 1 / (1 + exp(-GET(x, i)));
        add(y, i, s * GET(backward ? ct : x, i)); /* WRONG, for show: it lacks ct x s (1 - s) */
    }
    return NULL;
}
static const char *call(Text op) {
    Array *x = find("input", "x"), *ct = find("cotangent", "0");
    if (!is(op, "rms_norm") && !is(op, "silu")) return LACKING;
    if (!x || (backward && (!ct || ct->count != x->count))) return "no x, or no cotangent like it";
    return is(op, "silu") ? silu(x, ct) : rms_norm(x, ct, find("input", "w"));
}

#define BOTH "{\"asks\":[\"vjp\",\"forward\"],\"dtypes\":[\"float64\",\"float32\"],\"attrs\":"
#define ABOUT "{\"name\":\"grads.c\",\"version\":\"1\",\"language\":\"C\"},\"ops\":"
int main(void) {
    return serve("\"kind\":\"hello\",\"protocol\":1,\"implementation\":" ABOUT "{\"rms_norm\":" BOTH
                 "[\"eps\",\"unit_offset\"]},\"silu\":" BOTH "[]}}", call);
}
