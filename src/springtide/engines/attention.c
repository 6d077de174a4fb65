/* Attention of each row's new tokens over that row's own keys and values, float32.
 *
 * Compiled for a shape: SHARING query heads per KV head, keys KEY wide, values VALUE wide. Row r has its KV in the
 * block of length[r] tokens at offset[r] of each plane; a block holds [KV heads, length, width]. Its count[r] new
 * tokens, the first of which is packed[r] in query and out, stand at start[r] and after, and each sees the tokens up
 * to its own, at most the latest `window`. Nothing else is read. The softmax is taken online over chunks (Milakov,
 * Gimelshein: arXiv 1805.02867), so no buffer grows with the context.
 *
 * A single token reads keys once for all heads that share them, lanes along the width. Several go side by side, one
 * (token, head) per lane: keys and values are then scalars, and neither is ever transposed.
 */
#include <math.h>
#include <stdint.h>

#ifdef __AVX512F__
enum { WIDTH = 16, TILE = 8 };
#else
enum { WIDTH = 8, TILE = 4 };
#endif
enum { CHUNK = 256, LANES = 2 * WIDTH, TOKENS = LANES / SHARING ? LANES / SHARING : 1, KEYS = 64 };

typedef float vector __attribute__((vector_size(4 * WIDTH)));

/* A token sees at least itself, and that score's weight is of the order of 1: a hidden one's is lost in rounding. */
static const float HIDDEN = -1e30f;

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

static void attend_one(const float *query, const float *keys, const float *values, float *out, int64_t first,
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

/* out[i] (+)= the sum over n of factor[n][i] * lanes[n], for `count` rows i; registers hold all of them. */
static inline __attribute__((always_inline)) void products(const float *factor, int row_stride, int step, int n,
                                                           const float (*lanes)[LANES], float (*out)[LANES],
                                                           const int count, const int add) {
    vector sum[TILE][2];
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        for (int half = 0; half < 2; half++)
            sum[i][half] = add ? *(const vector *)&out[i][half * WIDTH] : (vector){0};
    for (int m = 0; m < n; m++) {
        vector low = *(const vector *)&lanes[m][0], high = *(const vector *)&lanes[m][WIDTH];
#pragma GCC unroll 8
        for (int i = 0; i < count; i++) {
            float x = factor[i * row_stride + m * step];
            sum[i][0] += x * low;
            sum[i][1] += x * high;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < count; i++)
        for (int half = 0; half < 2; half++) *(vector *)&out[i][half * WIDTH] = sum[i][half];
}

static void attend_many(const float *query, int64_t stride, const float *keys, const float *values, float *out,
                        int64_t out_stride, int64_t position, int tokens, int64_t window, float scale) {
    _Alignas(64) float q[KEY][LANES], sums[VALUE][LANES], score[KEYS][LANES];
    float best[LANES], total[LANES];
    int64_t own[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        int token = lane / SHARING, used = token < tokens;
        const float *from = query + (used ? token : 0) * stride + lane % SHARING * KEY;
        own[lane] = position + (used ? token : 0);
        best[lane] = HIDDEN;
        total[lane] = 0;
        for (int d = 0; d < KEY; d++) q[d][lane] = used ? from[d] * scale : 0;
        for (int d = 0; d < VALUE; d++) sums[d][lane] = 0;
    }
    int64_t end = position + tokens, begin = position < window ? 0 : position - window + 1;
    for (int64_t start = begin; start < end; start += KEYS) {
        int count = end - start < KEYS ? (int)(end - start) : KEYS, j = 0, d = 0;
        const float *k = keys + start * KEY, *v = values + start * VALUE;
        for (; j + TILE <= count; j += TILE)
            products(k + j * KEY, KEY, 1, KEY, (const float(*)[LANES])q, score + j, TILE, 0);
        for (; j < count; j++) products(k + j * KEY, KEY, 1, KEY, (const float(*)[LANES])q, score + j, 1, 0);
        if (start + count - 1 > position || start + window < end)
            for (j = 0; j < count; j++)
                for (int lane = 0; lane < LANES; lane++) {
                    int64_t age = own[lane] - start - j;
                    if (age < 0 || age >= window) score[j][lane] = HIDDEN;
                }
        float highest[LANES];
        for (int lane = 0; lane < LANES; lane++) highest[lane] = best[lane];
        for (j = 0; j < count; j++)
            for (int lane = 0; lane < LANES; lane++)
                highest[lane] = score[j][lane] > highest[lane] ? score[j][lane] : highest[lane];
        for (int lane = 0; lane < LANES; lane++) {
            best[lane] = exp_nonpositive(best[lane] - highest[lane]);
            total[lane] *= best[lane];
        }
        for (j = 0; j < count; j++)
            for (int lane = 0; lane < LANES; lane++) {
                score[j][lane] = exp_nonpositive(score[j][lane] - highest[lane]);
                total[lane] += score[j][lane];
            }
        for (d = 0; d < VALUE; d++)
            for (int lane = 0; lane < LANES; lane++) sums[d][lane] *= best[lane];
        for (int lane = 0; lane < LANES; lane++) best[lane] = highest[lane];
        for (d = 0; d + TILE <= VALUE; d += TILE)
            products(v + d, 1, VALUE, count, (const float(*)[LANES])score, sums + d, TILE, 1);
        for (; d < VALUE; d++) products(v + d, 1, VALUE, count, (const float(*)[LANES])score, sums + d, 1, 1);
    }
    for (int lane = 0; lane < tokens * SHARING; lane++)
        for (int d = 0; d < VALUE; d++)
            out[lane / SHARING * out_stride + lane % SHARING * VALUE + d] = sums[d][lane] / total[lane];
}

/* Most tokens that one task of `attend` takes; 1 where no two fit side by side. */
int64_t task_tokens(void) { return TOKENS; }

/* Task t is up to TOKENS new tokens of row task_row[t], from task_first[t] on. */
void attend(const float *query, const float *keys, const float *values, float *out, const int64_t *offset,
            const int64_t *length, const int64_t *start, const int64_t *count, const int64_t *packed,
            const int64_t *task_row, const int64_t *task_first, int64_t tasks, int64_t heads, int64_t window,
            float scale) {
#pragma omp parallel for schedule(dynamic, 4)
    for (int64_t item = 0; item < tasks * heads; item++) {
        int64_t row = task_row[item / heads], head = item % heads, first = task_first[item / heads];
        int64_t left = count[row] - first, position = start[row] + first;
        int64_t token = offset[row] * heads + head * length[row], place = (packed[row] + first) * heads + head;
        const float *q = query + place * SHARING * KEY, *k = keys + token * KEY, *v = values + token * VALUE;
        float *result = out + place * SHARING * VALUE;
        if (left == 1 || TOKENS == 1)
            attend_one(q, k, v, result, position < window ? 0 : position - window + 1, position + 1, scale);
        else
            attend_many(q, heads * SHARING * KEY, k, v, result, heads * SHARING * VALUE, position,
                        left < TOKENS ? (int)left : TOKENS, window, scale);
    }
}
