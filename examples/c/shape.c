/* Elements moved about. */
#include <stdint.h>

/* Any 16-bit type, by its bits: float16 and bfloat16 are `uint16_t` in C. A symbol per width. */
#define TRANSPOSE(NAME, BITS)                                                                     \
    void NAME(BITS *dx, const BITS *dy, int batch, int rows, int cols) {                          \
        for (int b = 0; b < batch; b++)                                                           \
            for (int r = 0; r < rows; r++)                                                        \
                for (int c = 0; c < cols; c++)                                                    \
                    dx[(b * rows + r) * cols + c] = dy[(b * cols + c) * rows + r];                \
    }

TRANSPOSE(transpose_backward_16, uint16_t)
TRANSPOSE(transpose_backward_32, float)
