/* Wrong on purpose, and harmless to the process: the numbers, or what a caller may rely on. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* WRONG NUMBERS, as a real trainer had them: the second term lacks one factor 1/rms, which is
 * nearly 1 for inputs of unit size. */
void trainer_rmsnorm_backward(float *dx, float *dw, const float *dy, const float *x, const float *w,
                              int rows, int cols) {
    memset(dw, 0, (size_t)cols * sizeof(float));
    for (int r = 0; r < rows; r++) {
        const float *xr = x + r * cols, *g = dy + r * cols;
        float squares = 0, dot = 0;
        for (int i = 0; i < cols; i++) squares += xr[i] * xr[i];
        float s = 1 / sqrtf(squares / cols + 1e-5f);
        for (int i = 0; i < cols; i++) dot += g[i] * w[i] * xr[i];
        for (int i = 0; i < cols; i++) {
            dw[i] += g[i] * xr[i] * s;
            dx[r * cols + i] = s * w[i] * g[i] - s * s * dot * xr[i] / cols; /* s * s * s */
        }
    }
}

/* WRONG: a swapped slot. What belongs to x is written to y's gradient, and the other way. */
void mul_backward_swapped(float *dx, float *dy, const float *dz, const float *x, const float *y,
                          size_t n) {
    for (size_t i = 0; i < n; i++) {
        dx[i] = dz[i] * x[i];
        dy[i] = dz[i] * y[i];
    }
}

/* WRONG as it is bound: it adds to dx, and the manifest does not say so. */
void logsumexp_backward(double *dx, const double *dy, const double *x, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const double *xr = x + r * cols;
        double top = xr[0], sum = 0;
        for (int i = 1; i < cols; i++) top = fmax(top, xr[i]);
        for (int i = 0; i < cols; i++) sum += exp(xr[i] - top);
        for (int i = 0; i < cols; i++) dx[r * cols + i] += dy[r] * exp(xr[i] - top) / sum;
    }
}

/* WRONG: a vector loop that forgets its remainder: the last n mod 8 elements stay unwritten. */
void mish_backward(double *dx, const double *dy, const double *x, size_t n) {
    for (size_t block = 0; block + 8 <= n; block += 8)
        for (size_t i = block; i < block + 8; i++) {
            double s = 1 / (1 + exp(-x[i])), t = tanh(fmax(x[i], 0) + log1p(exp(-fabs(x[i]))));
            dx[i] = dy[i] * (t + x[i] * (1 - t * t) * s);
        }
}

/* WRONG: `dots` may hold anything, and is taken to begin at zero. */
void softmax_backward(double *dx, double *dots, const double *dy, const double *x, int rows,
                      int cols) {
    for (int r = 0; r < rows; r++) {
        const double *xr = x + r * cols;
        double top = xr[0], sum = 0;
        for (int i = 1; i < cols; i++) top = fmax(top, xr[i]);
        for (int i = 0; i < cols; i++) sum += exp(xr[i] - top);
        for (int i = 0; i < cols; i++) dots[r] += dy[r * cols + i] * exp(xr[i] - top) / sum;
        for (int i = 0; i < cols; i++)
            dx[r * cols + i] = (dy[r * cols + i] - dots[r]) * exp(xr[i] - top) / sum;
    }
}

/* WRONG from the second call on: a buffer that outlives the call, and is never cleared. */
void hardsigmoid_backward(float *dx, const float *dy, const float *x, int n) {
    static float total[1024];
    for (int i = 0; i < n && i < 1024; i++) {
        total[i] += x[i] > -3 && x[i] < 3 ? dy[i] / 6 : 0;
        dx[i] = total[i];
    }
}

/* Right, but for sizes that it refuses with a status. */
int relu_squared_backward(float *dx, const float *dy, const float *x, int n) {
    if (n % 5 != 0) return 22;
    for (int i = 0; i < n; i++) dx[i] = x[i] > 0 ? 2 * x[i] * dy[i] : 0;
    return 0;
}

/* Right, and it talks: what it prints must neither be lost nor be taken for an answer. */
void relu_backward(float *dx, const float *dy, const float *x, int n) {
    printf("relu_backward: %d elements\n", n);
    fprintf(stderr, "relu_backward: DEBUG\n");
    for (int i = 0; i < n; i++) dx[i] = x[i] > 0 ? dy[i] : 0;
}
