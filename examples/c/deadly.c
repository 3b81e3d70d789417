/* Wrong on purpose, and deadly: each of these ends its process, or never comes back. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Writes one element past the end of dx. */
void exp_backward(float *dx, const float *dy, const float *x, int n) {
    for (int i = 0; i < n; i++) dx[i] = dy[i] * expf(x[i]);
    dx[n] = 0;
}

/* Reads one element past the end of x: it loads the next one before it needs it. */
void log_backward(float *dx, const float *dy, const float *x, int n) {
    volatile float next = x[0];
    for (int i = 0; i < n; i++) {
        float now = next;
        next = x[i + 1];
        dx[i] = dy[i] / now;
    }
}

/* Follows a null pointer: a workspace that the forward would have made, had it been called. (Not
 * static: a compiler that sees that nothing ever sets it may do what it likes.) */
float *roots;

void sqrt_backward(float *dx, const float *dy, const float *x, int n) {
    for (int i = 0; i < n; i++) {
        roots[i] = sqrtf(x[i]);
        dx[i] = dy[i] / (2 * roots[i]);
    }
}

/* Aborts: an assertion that most sizes break. */
void abs_backward(float *dx, const float *dy, const float *x, int n) {
    assert(n % 16 == 0 && "abs_backward wants blocks of 16");
    for (int i = 0; i < n; i++) dx[i] = x[i] < 0 ? -dy[i] : x[i] > 0 ? dy[i] : 0;
}

/* Leaves the program with status 0, as if all had gone well. */
void neg_backward(float *dx, const float *dy, int n) {
    for (int i = 0; i < n; i++) dx[i] = -dy[i];
    exit(0);
}

/* Never comes back: it waits for a worker thread that nobody started. */
static volatile int done;

void hardswish_backward(float *dx, const float *dy, const float *x, int n) {
    for (int i = 0; i < n; i++)
        dx[i] = dy[i] * (x[i] <= -3 ? 0 : x[i] >= 3 ? 1 : (2 * x[i] + 3) / 6);
    while (!done) {
    }
}

/* Overwrites an argument that it calls const. */
void softplus_backward(float *dx, const float *dy, const float *x, int n) {
    float *s = (float *)x;
    for (int i = 0; i < n; i++) {
        s[i] = 1 / (1 + expf(-x[i]));
        dx[i] = dy[i] * s[i];
    }
}
