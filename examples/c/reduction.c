/* Sums, of everything and along an axis. */
#include <stddef.h>
#include <stdint.h>

/* The output is the return value. */
double sum_forward(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

void sum_backward(double *dx, const double *dy, size_t n) {
    for (size_t i = 0; i < n; i++) dx[i] = *dy;
}

/* An array of dimensions of any rank, fastest axis first; each row sums to one element. */
void sum_rows_forward(float *y, const float *x, const int32_t *ne, int n_dims) {
    int64_t rows = 1;
    for (int i = 1; i < n_dims; i++) rows *= ne[i];
    for (int64_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (int i = 0; i < ne[0]; i++) y[r] += x[r * ne[0] + i];
    }
}

void sum_rows_backward(float *dx, const float *dy, const int32_t *ne, int n_dims) {
    int64_t rows = 1;
    for (int i = 1; i < n_dims; i++) rows *= ne[i];
    for (int64_t r = 0; r < rows; r++)
        for (int i = 0; i < ne[0]; i++) dx[r * ne[0] + i] = dy[r];
}
