/* mul, z = x * y: dx = dz * y, dy = dz * x. Right and wrong, in every convention of a manifest. */
#define _GNU_SOURCE
#include <fenv.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ── roles ── */
void mul(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) {
        double g = dz[i];
        dx[i] = g * y[i];
        dy[i] = g * x[i];
    }
}
void mul_f32(float *dx, float *dy, const float *dz, const float *x, const float *y, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = dz[i] * y[i];
        dy[i] = dz[i] * x[i];
    }
}
void mul_swapped(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    mul(dy, dx, dz, x, y, n);
}
void mul_unwritten(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = dz[i] * y[i];
        if (i < n - 2) dy[i] = dz[i] * x[i];
    }
}
void mul_adds(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] += dz[i] * y[i];
        dy[i] = dz[i] * x[i];
    }
}
void mul_adds_both(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] += dz[i] * y[i];
        dy[i] += dz[i] * x[i];
    }
}
void mul_keeps_sign(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = dx[i] == 0 ? dz[i] * y[i] : -dz[i] * y[i];
        dy[i] = dz[i] * x[i];
    }
}
void mul_cross(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) dx[i] = dz[i] * y[i] + 0 * dy[i];
    for (int i = 0; i < n; i++) dy[i] = dz[i] * x[i];
}
void mul_twice(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) dx[i] = dz[i] * y[i];
    for (int i = 0; i < n; i++) dy[i] = dz[i] * x[i];
}
void mul_in_place(double *d, double *dy, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) {
        dy[i] = d[i] * x[i];
        d[i] *= y[i];
    }
}
void mul_in_place_too_soon(double *d, double *dy, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) {
        d[i] *= y[i];
        dy[i] = d[i] * x[i];
    }
}
void mul_clobbers(double *dx, double *dy, const double *dz, double *x, const double *y, int n) {
    mul(dx, dy, dz, x, y, n);
    x[0] = 7;
}
void mul_scratch(double *dx, double *dy, const double *dz, const double *x, const double *y,
                 double *tmp, int n) {
    for (int i = 0; i < n; i++) tmp[i] = dz[i];
    mul(dx, dy, tmp, x, y, n);
}
void mul_zeros(double *dx, double *dy, const double *dz, const double *x, const double *y,
               double *tmp, int n) {
    for (int i = 0; i < n; i++) tmp[i] += dz[i];
    mul(dx, dy, tmp, x, y, n);
}
void mul_bytes(double *dx, double *dy, const double *dz, const double *x, const double *y,
               void *workspace, size_t bytes, int n) {
    memset(workspace, 1, bytes);
    mul(dx, dy, dz, x, y, n);
}
void mul_stream(double *dx, double *dy, const double *dz, const double *x, const double *y, int n,
                void *stream) {
    (void)stream;
    mul(dx, dy, dz, x, y, n);
}
void mul_follows(double *dx, double *dy, const double *dz, const double *x, const double *y, int n,
                 void *stream) {
    mul(dx, dy, dz, x, y, n);
    dx[0] += 0 * *(volatile char *)stream;
}
int mul_status(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    mul(dx, dy, dz, x, y, n);
    return n == 1 ? -5 : 0;
}
void mul_two(double *dx, double *dx2, double *dy, const double *dz, const double *x,
             const double *y, int n) {
    mul(dx, dy, dz, x, y, n);
    for (int i = 0; i < n; i++) {
        dx2[i] = dx[i] / 4;
        dx[i] -= dx2[i];
    }
}
void mul_nullable(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) {
        if (dx) dx[i] = dz[i] * y[i];
        if (dy) dy[i] = dz[i] * x[i];
    }
}
void mul_only_x(double *dx, const double *dz, const double *x, const double *y, int n) {
    (void)x;
    for (int i = 0; i < n; i++) dx[i] = dz[i] * y[i];
}
void mul_scaled(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = 8 * dz[i] * y[i];
        dy[i] = 8 * dz[i] * x[i];
    }
}
static int calls;
void mul_grows(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    mul(dx, dy, dz, x, y, n);
    if (n) dx[0] += calls++;
}
void mul_near(float *dx, float *dy, const float *dz, const float *x, const float *y, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = dz[i] * y[i] * 1.002f;
        dy[i] = dz[i] * x[i];
    }
}
void mul_prints(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    printf("mul of %d\n", n);
    mul(dx, dy, dz, x, y, n);
}
void mul_prints_wrong(double *dx, double *dy, const double *dz, const double *x, const double *y,
                      int n) {
    fprintf(stderr, "swapping\n");
    mul(dy, dx, dz, x, y, n);
}
void mul_prints_and_dies(double *dx, double *dy, const double *dz, const double *x, const double *y,
                         int n, void *stream) {
    printf("last words\n");
    mul(dx, dy, dz, x, y, n);
    *(volatile char *)stream = 1;
}
void mul_past(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    mul(dx, dy, dz, x, y, n);
    dx[n] = 1;
}
void mul_hangs(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    mul(dx, dy, dz, x, y, n);
    for (;;) usleep(1000);
}
void mul_index(double *dx, double *dy, const double *dz, const double *x, const double *y,
               int *map, int n) {
    mul(dx, dy, dz, x, y, n);
    for (int i = 0; i < n; i++) dx[i] += 0 * ((volatile double *)x)[(long)map[i] << 30];
}

void weighted(double *dx, double *dw, const double *dy, const double *x, const double *w, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = w ? dy[i] * w[i] : dy[i];
        if (dw) dw[i] = dy[i] * x[i];
    }
}

/* ── forwards and residuals ── */
void mul_forward(double *z, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) z[i] = x[i] * y[i];
}
void add_forward(double *z, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) z[i] = x[i] + y[i];
}
void mul_forward_near(float *z, const float *x, const float *y, int n) {
    for (int i = 0; i < n; i++) z[i] = x[i] * y[i] * 1.002f;
}
void part_forward(double *z, const double *x, const double *y, int n) {
    mul_forward(z, x, y, n - 1);
}
void saving_forward(double *z, double *keep, const double *x, const double *y, int n) {
    mul_forward(z, x, y, n);
    for (int i = 0; i < n; i++) keep[i] = x[i];
}
void half_saving_forward(double *z, double *keep, const double *x, const double *y, int n) {
    mul_forward(z, x, y, n);
    for (int i = 0; i < n / 2; i++) keep[i] = x[i];
}
void from_saved(double *dx, double *dy, const double *dz, const double *keep, const double *y, int n) {
    mul(dx, dy, dz, keep, y, n);
}
void spoils_saved(double *dx, double *dy, const double *dz, double *keep, const double *y, int n) {
    mul(dx, dy, dz, keep, y, n);
    if (n) keep[n - 1] += 1;
}
void indexing_forward(double *z, int *at, const double *x, const double *y, int n) {
    mul_forward(z, x, y, n);
    for (int i = 0; i < n; i++) at[i] = i;
}
void misindexing_forward(double *z, int *at, const double *x, const double *y, int n) {
    mul_forward(z, x, y, n);
    for (int i = 0; i < n; i++) at[i] = n - 1 - i;
}
void indexed(double *dx, double *dy, const double *dz, const int *at, const double *x,
             const double *y, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = dz[i] * y[i];
        dy[i] = dz[i] * x[at[i]];
    }
}
void with_value(double *dx, double *dy, double *z, const double *dz, const double *x,
                const double *y, int n) {
    mul(dx, dy, dz, x, y, n);
    mul_forward(z, x, y, n);
}
void with_wrong_value(double *dx, double *dy, double *z, const double *dz, const double *x,
                      const double *y, int n) {
    mul(dx, dy, dz, x, y, n);
    add_forward(z, x, y, n);
}
/* tanh, y = tanh(x): dx = dy * (1 - y²) */
void from_output(double *dx, const double *dy, const double *y, int n) {
    for (int i = 0; i < n; i++) dx[i] = dy[i] * (1 - y[i] * y[i]);
}
/* Eight at a time, and the rest by a loop that stops too soon: right where n % 8 is not 1. */
void from_output_tails(double *dx, const double *dy, const double *y, int n) {
    from_output(dx, dy, y, n);
    if (n % 8 == 1 && n > 8) dx[n - 1] = 0;
}

/* ── handles ── */
typedef struct { int n; } plan;
plan *plan_new(int n) {
    plan *made = malloc(sizeof *made);
    made->n = n;
    return made;
}
plan *plan_none(int n) { return n > 0 ? NULL : plan_new(n); }
void plan_free(plan *made) { free(made); }
void planned(const plan *made, double *dx, double *dy, const double *dz, const double *x,
             const double *y) {
    mul(dx, dy, dz, x, y, made->n);
}

/* ── layouts: dx and dy in one buffer, rows of both side by side, then a gap ── */
void packed(double *d, const double *dz, const double *xy, int rows, int n, int ld) {
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) {
            d[r * ld + i] = dz[r * n + i] * xy[r * ld + n + i];
            d[r * ld + n + i] = dz[r * n + i] * xy[r * ld + i];
        }
}
void packed_into_gap(double *d, const double *dz, const double *xy, int rows, int n, int ld) {
    packed(d, dz, xy, rows, n, ld);
    if (rows > 1) d[2 * n] = 1;
}
void packed_from_gap(double *d, const double *dz, const double *xy, int rows, int n, int ld) {
    packed(d, dz, xy, rows, n, ld);
    if (rows > 1) d[0] += xy[2 * n];
}
void transposed(double *dx, double *dy, const double *dz, const double *x, const double *y,
                const int64_t *ne, int ndim) {
    int64_t rows = ne[0], cols = ne[1];
    if (ndim != 2) abort();
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            dx[c * rows + r] = dz[r * cols + c] * y[r * cols + c];
            dy[r * cols + c] = dz[r * cols + c] * x[c * rows + r];
        }
}

/* ── arguments ── */
void every_scalar(double *dx, double *dy, const double *dz, const double *x, const double *y,
                  int8_t a, uint8_t b, short c, unsigned short d, int e, unsigned f, long g,
                  size_t h, float i, double j, bool k, const char *word, const float *numbers) {
    bool right = a == -8 && b == 200 && c == -300 && d == 60000 && e == -70000 && f == 3000000000u &&
                 g == -5000000000 && i == 0.5f && j == 0.1 && k && !strcmp(word, "naïve") &&
                 numbers[0] == 1.5f && numbers[1] == -2;
    if (right) mul(dx, dy, dz, x, y, (int)h);
}
void rows_u16(double *dtable, const double *dy, const uint16_t *tokens, size_t n, size_t width) {
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < width; c++) dtable[tokens[i] * width + c] += dy[i * width + c];
}
void rows_i64(double *dtable, const double *dy, const int64_t *tokens, size_t n, size_t width) {
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < width; c++) dtable[tokens[i] * width + c] += dy[i * width + c];
}
double scale_vjp(double *dx, const double *dy, const double *x, double s, int n) {
    double ds = 0;
    for (int i = 0; i < n; i++) {
        dx[i] = dy[i] * s;
        ds += dy[i] * x[i];
    }
    return ds;
}

/* ── 16 bits ── */
static float wide(uint16_t bits) {
    uint32_t whole = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &whole, 4);
    return value;
}
static uint16_t narrow(float value) {
    uint32_t whole;
    memcpy(&whole, &value, 4);
    return (uint16_t)((whole + 0x7fff + ((whole >> 16) & 1)) >> 16);
}
void mul_bf16(uint16_t *dx, uint16_t *dy, const uint16_t *dz, const uint16_t *x, const uint16_t *y,
              int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = narrow(wide(dz[i]) * wide(y[i]));
        dy[i] = narrow(wide(dz[i]) * wide(x[i]));
    }
}
void mul_bf16_wrong(uint16_t *dx, uint16_t *dy, const uint16_t *dz, const uint16_t *x,
                  const uint16_t *y, int n) {
    for (int i = 0; i < n; i++) {
        float a = wide(dz[i]) * wide(y[i]) * 1.25f, b = wide(dz[i]) * wide(x[i]);
        dx[i] = narrow(a);
        dy[i] = narrow(b);
    }
}

/* ── float32 products whose operands, or whose cotangent, lose 13 bits (TF32) ── */
static float tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x0fffu + ((bits >> 13) & 1u)) & ~0x1fffu;
    memcpy(&x, &bits, 4);
    return x;
}
void mul_tf32(float *dx, float *dy, const float *dz, const float *x, const float *y, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = dz[i] * tf32(y[i]);
        dy[i] = dz[i] * tf32(x[i]);
    }
}
void mul_tf32_cotangent(float *dx, float *dy, const float *dz, const float *x, const float *y, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = tf32(dz[i]) * y[i];
        dy[i] = tf32(dz[i]) * x[i];
    }
}

/* ── losses: square_error, the sum of (x − y)² ── */
void loss(double *dx, double *dy, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = 2 * (x[i] - y[i]);
        dy[i] = -dx[i];
    }
}
void loss_by_value(double *dx, double *dy, const double *x, const double *y, double dl, int n) {
    for (int i = 0; i < n; i++) {
        dx[i] = 2 * dl * (x[i] - y[i]);
        dy[i] = -dx[i];
    }
}
double loss_forward(const double *x, const double *y, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sum;
}

/* ── two outputs: (2x, x²) ── */
void pair(double *dx, const double *d0, const double *d1, const double *x, int n) {
    for (int i = 0; i < n; i++) dx[i] = 2 * d0[i] + 2 * x[i] * d1[i];
}
void pair_first(double *dx, const double *d0, const double *x, int n) {
    for (int i = 0; i < n; i++) dx[i] = 2 * d0[i] + 2 * x[i];
}
void pair_forward(double *twice, double *square, const double *x, int n) {
    for (int i = 0; i < n; i++) {
        twice[i] = 2 * x[i];
        square[i] = x[i] * x[i];
    }
}

/* Rows and columns: softmax's VJP, as it should be, wrong, and one that never ends. */
void softmax_rows(double *dx, const double *dy, const double *y, int rows, int cols) {
    for (int n = 0; n < rows; n++) {
        double s = 0;
        for (int i = 0; i < cols; i++) s += dy[n * cols + i] * y[n * cols + i];
        for (int i = 0; i < cols; i++) dx[n * cols + i] = y[n * cols + i] * (dy[n * cols + i] - s);
    }
}

void softmax_wrong(double *dx, const double *dy, const double *y, int rows, int cols) {
    softmax_rows(dx, dy, y, rows, cols);
    for (int i = 0; i < rows * cols; i++) dx[i] *= 2;
}

void softmax_hangs(double *dx, const double *dy, const double *y, int rows, int cols) {
    volatile int forever = 1;
    while (forever) {
        softmax_rows(dx, dy, y, rows, cols);
        usleep(1000);
    }
}

/* ── what gets around pages, and what is left behind ── */
static void opens(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    mprotect((void *)((uintptr_t)info->si_addr & -4096UL), 4096, PROT_READ | PROT_WRITE);
}
static void handle(void) {
    struct sigaction own = {.sa_sigaction = opens, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &own, 0);
}
void mul_handles_past(double *dx, double *dy, const double *dz, const double *x, const double *y,
                      int n) {
    handle();
    mul(dx, dy, dz, x, y, n);
    ((volatile double *)dx)[n] = 1;
}
void mul_opens(double *dx, double *dy, const double *dz, double *x, const double *y, int n) {
    mul(dx, dy, dz, x, y, n);
    mprotect((void *)((uintptr_t)x & -4096UL), 4096, PROT_READ | PROT_WRITE);
    x[0] = 1;
}
void mul_handles_its_own(double *dx, double *dy, const double *dz, const double *x, const double *y,
                         int n) {
    volatile double *heap = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    handle();
    *heap = 0;
    mul(dx, dy, dz, x, y, n);
    munmap((void *)heap, 4096);
}
void mul_rounds(double *dx, double *dy, const double *dz, const double *x, const double *y, int n) {
    mul(dx, dy, dz, x, y, n);
    fesetround(FE_TOWARDZERO);
}
