#include <math.h>

void silu_backward(float *dx, const float *dy, const float *x, int n) {
    for (int i = 0; i < n; i++) {
        float s = 1 / (1 + expf(-x[i]));
        dx[i] = dy[i] * s * (1 + x[i]);
    }
}
