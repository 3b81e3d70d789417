/* Rotary positions, with a plan that a constructor makes and only this file can read. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct rope_plan {
    int head_dim, n_dims;
    bool half_split;
    double frequency[];
} rope_plan;

rope_plan *rope_plan_new(int head_dim, int n_dims, double base, bool half_split) {
    if (n_dims == 0) n_dims = head_dim;
    rope_plan *plan = malloc(sizeof *plan + (size_t)n_dims * sizeof(double));
    if (plan == NULL) return NULL;
    plan->head_dim = head_dim;
    plan->n_dims = n_dims;
    plan->half_split = half_split;
    for (int i = 0; i < n_dims / 2; i++) plan->frequency[i] = pow(base, -2.0 * i / n_dims);
    return plan;
}

void rope_plan_free(rope_plan *plan) { free(plan); }

static void rotate(const rope_plan *plan, float *x, double position, int direction) {
    int half = plan->n_dims / 2;
    for (int i = 0; i < half; i++) {
        int a = plan->half_split ? i : 2 * i, b = plan->half_split ? i + half : 2 * i + 1;
        double c = cos(position * plan->frequency[i]);
        double s = direction * sin(position * plan->frequency[i]);
        double u = x[a], v = x[b];
        x[a] = (float)(c * u - s * v);
        x[b] = (float)(s * u + c * v);
    }
}

/* In place, in both directions: the rows before the call, the rotated ones after it. */
void rope_forward(const rope_plan *plan, float *rows, int B, int T, int H, int offset) {
    for (int r = 0; r < B * T * H; r++)
        rotate(plan, rows + r * plan->head_dim, offset + r / H % T, 1);
}

void rope_backward(const rope_plan *plan, float *rows, int B, int T, int H, int offset) {
    for (int r = 0; r < B * T * H; r++)
        rotate(plan, rows + r * plan->head_dim, offset + r / H % T, -1);
}
