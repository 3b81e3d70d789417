/* Sums and products of elements. */
#include <stddef.h>

/* Accumulated into both operands' gradients, as a residual connection has it. */
void residual_backward(float *dinp1, float *dinp2, const float *dout, int n) {
    for (int i = 0; i < n; i++) {
        dinp1[i] += dout[i];
        dinp2[i] += dout[i];
    }
}

/* z = a b. With the same tensor as a and b it is the square, whose gradient is da + db: two buffers
 * that sum to one. */
void mul_backward(double *da, double *db, const double *a, const double *b, const double *dz,
                  size_t n) {
    for (size_t i = 0; i < n; i++) {
        da[i] = dz[i] * b[i];
        db[i] = dz[i] * a[i];
    }
}

/* y = s x: the gradient of the scalar s is the return value. dx may be dy. */
double scale_backward(double *dx, const double *dy, const double *x, double s, size_t n) {
    double ds = 0;
    for (size_t i = 0; i < n; i++) {
        ds += dy[i] * x[i];
        dx[i] = dy[i] * s;
    }
    return ds;
}
