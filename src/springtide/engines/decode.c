/* Attention of one query token per row over that row's own keys and values, float32.
 *
 * Compiled for a shape: SHARING query heads per KV head, keys KEY wide, values VALUE wide. Row r has its KV in the
 * block of length[r] tokens at offset[r] of each plane and sees tokens first[r] to last[r] - 1. A block holds
 * [KV heads, length, width]. Keys are read once for all heads that share them, and nothing beyond a row's own length
 * is read. The softmax is taken online over chunks (Milakov, Gimelshein: arXiv 1805.02867), so no buffer grows with
 * the context.
 */
#include <math.h>
#include <stdint.h>

enum { CHUNK = 256 };

/* exp for x <= 0, within two units in the last place (Cephes polynomial); branch-free, so that loops vectorise. */
static inline float exp_nonpositive(float x) {
    union { int32_t bits; float value; } power;
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    power.bits = ((int32_t)n + 127) << 23;
    return (p * r * r + r + 1.0f) * power.value;
}

static void attend(const float *query, const float *keys, const float *values, float *out, int64_t first,
                   int64_t last, float scale) {
    float q[SHARING][KEY], sums[SHARING][VALUE], score[SHARING][CHUNK], best[SHARING], total[SHARING];
    for (int g = 0; g < SHARING; g++) {
        best[g] = -INFINITY;
        total[g] = 0;
        for (int d = 0; d < KEY; d++) q[g][d] = query[g * KEY + d] * scale;
        for (int d = 0; d < VALUE; d++) sums[g][d] = 0;
    }
    for (int64_t start = first; start < last; start += CHUNK) {
        int count = last - start < CHUNK ? (int)(last - start) : CHUNK;
        const float *k = keys + start * KEY, *v = values + start * VALUE;
        float highest[SHARING];
        for (int g = 0; g < SHARING; g++) highest[g] = best[g];
        for (int j = 0; j < count; j++)
            for (int g = 0; g < SHARING; g++) {
                float product = 0;
                for (int d = 0; d < KEY; d++) product += q[g][d] * k[j * KEY + d];
                score[g][j] = product;
                highest[g] = product > highest[g] ? product : highest[g];
            }
        for (int g = 0; g < SHARING; g++) {
            float shrink = start == first ? 0.0f : exp_nonpositive(best[g] - highest[g]), sum = 0;
            for (int j = 0; j < count; j++) {
                score[g][j] = exp_nonpositive(score[g][j] - highest[g]);
                sum += score[g][j];
            }
            total[g] = total[g] * shrink + sum;
            best[g] = highest[g];
            for (int d = 0; d < VALUE; d++) sums[g][d] *= shrink;
        }
        for (int j = 0; j < count; j++)
            for (int g = 0; g < SHARING; g++)
                for (int d = 0; d < VALUE; d++) sums[g][d] += score[g][j] * v[j * VALUE + d];
    }
    for (int g = 0; g < SHARING; g++)
        for (int d = 0; d < VALUE; d++) out[g * VALUE + d] = sums[g][d] / total[g];
}

void decode(const float *query, const float *keys, const float *values, float *out, const int64_t *offset,
            const int64_t *length, const int64_t *first, const int64_t *last, int64_t rows, int64_t heads,
            float scale) {
#pragma omp parallel for schedule(dynamic, 4)
    for (int64_t task = 0; task < rows * heads; task++) {
        int64_t row = task / heads, head = task % heads;
        int64_t token = offset[row] * heads + head * length[row];
        attend(query + task * SHARING * KEY, keys + token * KEY, values + token * VALUE, out + task * SHARING * VALUE,
               first[row], last[row], scale);
    }
}
