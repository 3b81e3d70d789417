/* Matrix products. */
#include <stddef.h>
#include <stdint.h>

/* Nullable pointers: bias and dbias are NULL where there is none. Accumulated. Arguments come in
 * another order in the backward. w is [OC, C]. */
void matmul_forward(float *out, const float *inp, const float *w, const float *bias, int rows,
                    int C, int OC) {
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < OC; o++) {
            double sum = bias != NULL ? bias[o] : 0;
            for (int i = 0; i < C; i++) sum += (double)inp[r * C + i] * w[o * C + i];
            out[r * OC + o] = (float)sum;
        }
}

void matmul_backward(const float *w, float *dw, const float *dout, float *dbias, float *dinp,
                     const float *inp, int OC, int rows, int C) {
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < OC; o++) {
            float d = dout[r * OC + o];
            if (dbias != NULL) dbias[o] += d;
            for (int i = 0; i < C; i++) {
                dinp[r * C + i] += d * w[o * C + i];
                dw[o * C + i] += d * inp[r * C + i];
            }
        }
}

/* One flat buffer of parameters, and one of their gradients, with named offsets: A [O, R] begins at
 * 0, B [R, I] behind it. y = x (A B)^T. */
void low_rank_backward(double *dparams, double *dx, const double *params, const double *x,
                       const double *dy, int rows, int O, int R, int I) {
    const double *A = params, *B = params + O * R;
    double *dA = dparams, *dB = dparams + O * R;
    for (int i = 0; i < O * R + R * I; i++) dparams[i] = 0;
    for (int i = 0; i < rows * I; i++) dx[i] = 0;
    for (int t = 0; t < rows; t++)
        for (int r = 0; r < R; r++) {
            double hidden = 0, dhidden = 0;
            for (int i = 0; i < I; i++) hidden += B[r * I + i] * x[t * I + i];
            for (int o = 0; o < O; o++) {
                dhidden += dy[t * O + o] * A[o * R + r];
                dA[o * R + r] += dy[t * O + o] * hidden;
            }
            for (int i = 0; i < I; i++) {
                dB[r * I + i] += dhidden * x[t * I + i];
                dx[t * I + i] += dhidden * B[r * I + i];
            }
        }
}

/* A gradient that does not exist: the base weight w is frozen. y = x (W + s/R A B)^T. */
void lora_backward(double *dx, double *da, double *db, const double *dy, const double *x,
                   const double *w, const double *a, const double *b, double s, int64_t rows,
                   int64_t O, int64_t R, int64_t I) {
    for (int64_t i = 0; i < rows * I; i++) dx[i] = 0;
    for (int64_t i = 0; i < O * R; i++) da[i] = 0;
    for (int64_t i = 0; i < R * I; i++) db[i] = 0;
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t o = 0; o < O; o++)
            for (int64_t i = 0; i < I; i++) dx[t * I + i] += dy[t * O + o] * w[o * I + i];
        for (int64_t r = 0; r < R; r++) {
            double hidden = 0, dhidden = 0;
            for (int64_t i = 0; i < I; i++) hidden += b[r * I + i] * x[t * I + i];
            for (int64_t o = 0; o < O; o++) {
                dhidden += dy[t * O + o] * a[o * R + r] * s / R;
                da[o * R + r] += dy[t * O + o] * hidden * s / R;
            }
            for (int64_t i = 0; i < I; i++) {
                db[r * I + i] += dhidden * x[t * I + i];
                dx[t * I + i] += dhidden * b[r * I + i];
            }
        }
    }
}
