/* The C ABI as a C program uses it: an engine that decodes two forked sequences over NVFP4 pages,
 * against a plain loop over the cache's bytes. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvilt/kvilt_c.h"
#include "src/api/c_test.h"

enum { PAGES = 12, PAGE_SIZE = 4, KV_HEADS = 2, Q_HEADS = 4, DIM = 64, MAX_TOKENS = 32, BATCH = 2 };

/* One side: codes [pages, page_size, heads, dim / 2], scales [pages, page_size, heads, dim / 16].
 */
typedef struct side_memory {
  uint8_t codes[PAGES * PAGE_SIZE * KV_HEADS * DIM / 2];
  uint8_t scales[PAGES * PAGE_SIZE * KV_HEADS * DIM / 16];
} side_memory;

static side_memory k_memory;
static side_memory v_memory;
static const float kGlobal = 0.5f;

static float next_random(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static float decode_e4m3(uint8_t byte) {
  const int exponent = (byte >> 3) & 15;
  const float mantissa = (float)(byte & 7);
  const float magnitude =
      exponent == 0 ? ldexpf(mantissa / 8.0f, -6) : ldexpf(1.0f + mantissa / 8.0f, exponent - 7);
  return (byte & 0x80) ? -magnitude : magnitude;
}

static float decode(const side_memory* side, int32_t page, int64_t entry, int head, int d) {
  static const float codes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const int64_t row = ((int64_t)page * PAGE_SIZE + entry) * KV_HEADS + head;
  const uint8_t byte = side->codes[row * (DIM / 2) + d / 2];
  const int code = d % 2 == 0 ? byte & 15 : byte >> 4;
  const float value = codes[code & 7] * decode_e4m3(side->scales[row * (DIM / 16) + d / 16]);
  return ((code & 8) ? -value : value) * kGlobal;
}

static kvilt_side make_side(side_memory* memory) {
  const int64_t data[4] = {PAGES, PAGE_SIZE, KV_HEADS, DIM / 2};
  const int64_t scales[4] = {PAGES, PAGE_SIZE, KV_HEADS, DIM / 16};
  kvilt_side side = kvilt_segment_default().k;
  memset(memory, 0xFF, sizeof *memory);
  side.data = kvilt_dense(memory->codes, KVILT_NVFP4, 4, data);
  side.scales = kvilt_dense(memory->scales, KVILT_E4M3, 4, scales);
  side.global = kGlobal;
  return side;
}

/* The table of a batch, and the arrays that a segment borrows for it. */
typedef struct table {
  int64_t indptr[BATCH + 1];
  int64_t kv_len[BATCH];
  int32_t pages[PAGES];
  int64_t page_count;
} table;

static void set_table(const kvilt_pool* pool, const int64_t* sequences, int64_t count, table* t,
                      kvilt_segment* segment) {
  EXPECT_OK(kvilt_pool_table(pool, sequences, count, t->indptr, t->kv_len, t->pages, PAGES,
                             &t->page_count));
  segment->indptr = kvilt_i64_array(t->indptr, count + 1);
  segment->kv_len = kvilt_i64_array(t->kv_len, count);
  segment->indices = kvilt_i32_array(t->pages, t->page_count);
}

/* `count` new tokens at the end of one sequence. */
static void append(const kvilt_device* device, kvilt_pool* pool, kvilt_segment* segment,
                   int64_t sequence, int64_t count, uint32_t* random) {
  static float rows[2][MAX_TOKENS * KV_HEADS * DIM];
  const int64_t shape[3] = {count, KV_HEADS, DIM};
  const int64_t token_indptr[2] = {0, count};
  kvilt_append_request request = kvilt_append_request_default();
  kvilt_health health;
  kvilt_page_copy copies[1];
  int64_t copy_count = -1;
  table t;
  int64_t i;
  for (i = 0; i < count * KV_HEADS * DIM; ++i) {
    rows[0][i] = 3.0f * next_random(random);
    rows[1][i] = 5.0f * next_random(random);
  }
  rows[1][0] = NAN;
  EXPECT_OK(kvilt_pool_append(pool, &sequence, &count, 1, copies, &copy_count));
  EXPECT_OK(kvilt_copy_pages(device, segment, copies, copy_count, NULL));
  set_table(pool, &sequence, 1, &t, segment);
  request.k = kvilt_dense(rows[0], KVILT_F32, 3, shape);
  request.v = kvilt_dense(rows[1], KVILT_F32, 3, shape);
  request.cache = segment;
  request.token_indptr = kvilt_i64_array(token_indptr, 2);
  memset(&health, 0, sizeof health);
  EXPECT_OK(kvilt_append_kv(device, &request, NULL, &health, NULL));
  EXPECT(health.nan == 1);
}

/* The plain loop: out [BATCH, Q_HEADS, DIM], lse [BATCH, Q_HEADS]. */
static void reference(const table* t, const float* q, double* out, double* lse) {
  int r, h, d;
  for (r = 0; r < BATCH; ++r) {
    for (h = 0; h < Q_HEADS; ++h) {
      const int row = r * Q_HEADS + h;
      const int head = h / (Q_HEADS / KV_HEADS);
      double sum = 0;
      int64_t j;
      for (d = 0; d < DIM; ++d) out[row * DIM + d] = 0;
      for (j = 0; j < t->kv_len[r]; ++j) {
        const int32_t page = t->pages[t->indptr[r] + j / PAGE_SIZE];
        double score = 0;
        for (d = 0; d < DIM; ++d) {
          score += (double)q[row * DIM + d] * decode(&k_memory, page, j % PAGE_SIZE, head, d);
        }
        score = exp(score / sqrt((double)DIM));
        sum += score;
        for (d = 0; d < DIM; ++d) {
          out[row * DIM + d] += score * decode(&v_memory, page, j % PAGE_SIZE, head, d);
        }
      }
      for (d = 0; d < DIM; ++d) out[row * DIM + d] /= sum;
      lse[row] = log(sum);
    }
  }
}

static void compare(const table* t, const float* q, const float* out, const float* lse) {
  static double want_out[BATCH * Q_HEADS * DIM];
  static double want_lse[BATCH * Q_HEADS];
  double worst = 0;
  int i;
  reference(t, q, want_out, want_lse);
  for (i = 0; i < BATCH * Q_HEADS * DIM; ++i) {
    const double error = fabs((double)out[i] - want_out[i]);
    if (!(error <= worst)) worst = error;
  }
  EXPECT(worst <= 1e-4);
  for (i = 0; i < BATCH * Q_HEADS; ++i) EXPECT(fabs((double)lse[i] - want_lse[i]) <= 1e-3);
}

static void test_decode(const kvilt_device* device) {
  static float q[BATCH * Q_HEADS * DIM];
  static float out[BATCH * Q_HEADS * DIM];
  static float lse[BATCH * Q_HEADS];
  const int64_t q_shape[3] = {BATCH, Q_HEADS, DIM};
  const int64_t lse_shape[2] = {BATCH, Q_HEADS};
  const int64_t q_indptr[BATCH + 1] = {0, 1, 2};
  kvilt_attention_request request = kvilt_attention_request_default();
  kvilt_plan_options options = kvilt_plan_options_default();
  kvilt_device_spec spec = kvilt_device_spec_default();
  kvilt_plan_info info = kvilt_plan_info_default();
  kvilt_segment segment = kvilt_segment_default();
  kvilt_pool* pool = NULL;
  kvilt_plan* plan = NULL;
  kvilt_prepared* prepared = NULL;
  void* workspace = NULL;
  int64_t sequences[BATCH];
  uint32_t random = 5;
  char text[64];
  size_t length = 0;
  table t;
  int i;

  segment.k = make_side(&k_memory);
  segment.v = make_side(&v_memory);
  EXPECT_OK(kvilt_pool_create(PAGES, PAGE_SIZE, &pool));
  EXPECT_OK(kvilt_pool_new_sequence(pool, &sequences[0]));
  append(device, pool, &segment, sequences[0], 10, &random);
  EXPECT_OK(kvilt_pool_fork(pool, sequences[0], &sequences[1]));
  EXPECT(kvilt_pool_owners(pool, 0) == 2);
  append(device, pool, &segment, sequences[1], 7, &random); /* Copies the shared last page. */
  append(device, pool, &segment, sequences[0], 1, &random);
  set_table(pool, sequences, BATCH, &t, &segment);
  EXPECT(t.kv_len[0] == 11 && t.kv_len[1] == 17);
  EXPECT(kvilt_pool_free_pages(pool) == PAGES - 6);

  for (i = 0; i < BATCH * Q_HEADS * DIM; ++i) q[i] = next_random(&random);
  request.q = kvilt_dense(q, KVILT_F32, 3, q_shape);
  request.out = kvilt_dense(out, KVILT_F32, 3, q_shape);
  request.lse = kvilt_dense(lse, KVILT_F32, 2, lse_shape);
  request.q_indptr = kvilt_i64_array(q_indptr, BATCH + 1);
  request.segments = &segment;
  request.segment_count = 1;
  request.mask = KVILT_MASK_CAUSAL;
  options.accuracy = KVILT_ACCURACY_F32;
  options.split = KVILT_SPLIT_FIXED;
  options.fixed_split_rows = 16;
  EXPECT_OK(kvilt_device_get_spec(device, &spec));
  EXPECT_OK(kvilt_make_plan(&request, &spec, &options, &plan));
  EXPECT_OK(kvilt_plan_get_info(plan, &info));
  EXPECT(info.max_splits == 2 && info.workspace_bytes > 0 && info.plan_data_bytes > 0);
  EXPECT_OK(kvilt_plan_describe(plan, 1, 0, 1, text, sizeof text, &length));
  EXPECT(length > sizeof text && strlen(text) == sizeof text - 1 && text[0] == '{');
  EXPECT_OK(kvilt_prepare(device, plan, &prepared));
  kvilt_plan_free(plan);
  EXPECT_OK(kvilt_allocate(device, info.workspace_bytes, &workspace));
  EXPECT_OK(kvilt_run(prepared, &request, workspace, info.workspace_bytes, NULL));
  compare(&t, q, out, lse);
  EXPECT_OK(kvilt_take_error(prepared));
  EXPECT_ERROR(kvilt_run(prepared, &request, workspace, info.workspace_bytes - 1, NULL),
               KVILT_RESOURCE_EXHAUSTED, "workspace");

  /* One more token, without a new plan, then with the plan updated. */
  append(device, pool, &segment, sequences[0], 1, &random);
  set_table(pool, sequences, BATCH, &t, &segment);
  EXPECT_ERROR(kvilt_run(prepared, &request, workspace, info.workspace_bytes, NULL),
               KVILT_FAILED_PRECONDITION, "request 0 has 12 keys");
  EXPECT_OK(kvilt_update_plan(prepared, &request, NULL));
  EXPECT_OK(kvilt_prepared_get_info(prepared, &info));
  kvilt_free(workspace);
  EXPECT_OK(kvilt_allocate(device, info.workspace_bytes, &workspace));
  EXPECT_OK(kvilt_run(prepared, &request, workspace, info.workspace_bytes, NULL));
  compare(&t, q, out, lse);

  EXPECT_OK(kvilt_pool_truncate(pool, sequences[1], 17));
  EXPECT_OK(kvilt_pool_free(pool, sequences[0]));
  EXPECT(kvilt_pool_free_pages(pool) == PAGES);
  EXPECT_ERROR(kvilt_pool_length(pool, sequences[0], &t.page_count), KVILT_INVALID_ARGUMENT,
               "not a live sequence");
  kvilt_free(workspace);
  kvilt_prepared_free(prepared);
  kvilt_pool_destroy(pool);
}

static void test_dequantize(const kvilt_device* device) {
  static float rows[3 * KV_HEADS * DIM];
  const int64_t shape[3] = {3, KV_HEADS, DIM};
  const int64_t indptr[2] = {0, 1};
  const int64_t kv_len[1] = {3};
  const int32_t pages[1] = {4};
  kvilt_segment segment = kvilt_segment_default();
  kvilt_tensor out;
  int64_t t;
  int head, d;
  segment.k = make_side(&k_memory);
  segment.v = make_side(&v_memory);
  for (t = 0; t < (int64_t)sizeof k_memory.codes; ++t) k_memory.codes[t] = (uint8_t)(t * 37);
  for (t = 0; t < (int64_t)sizeof k_memory.scales; ++t) k_memory.scales[t] = (uint8_t)(t % 0x7F);
  segment.indptr = kvilt_i64_array(indptr, 2);
  segment.kv_len = kvilt_i64_array(kv_len, 1);
  segment.indices = kvilt_i32_array(pages, 1);
  out = kvilt_dense(rows, KVILT_F32, 3, shape);
  EXPECT_OK(kvilt_dequantize_kv(device, &segment, &out, NULL, NULL));
  for (t = 0; t < 3; ++t) {
    for (head = 0; head < KV_HEADS; ++head) {
      for (d = 0; d < DIM; ++d) {
        EXPECT(rows[(t * KV_HEADS + head) * DIM + d] == decode(&k_memory, 4, t, head, d));
      }
    }
  }
}

static void test_merge(const kvilt_device* device) {
  /* Z = 2 and 8, values 0 and 1: the merge is 0.8 with lse ln 10 (CASES.md P58). */
  float outs[3][8] = {{0}, {1, 1, 1, 1, 1, 1, 1, 1}, {0}};
  float lses[3][1];
  const int64_t out_shape[3] = {1, 1, 8};
  const int64_t lse_shape[2] = {1, 1};
  kvilt_attention_state states[3];
  int i;
  lses[0][0] = logf(2.0f);
  lses[1][0] = logf(8.0f);
  for (i = 0; i < 3; ++i) {
    states[i] = kvilt_attention_state_default();
    states[i].out = kvilt_dense(outs[i], KVILT_F32, 3, out_shape);
    states[i].lse = kvilt_dense(lses[i], KVILT_F32, 2, lse_shape);
  }
  EXPECT_OK(kvilt_merge_states(device, states, 2, &states[2], NULL));
  for (i = 0; i < 8; ++i) EXPECT(fabsf(outs[2][i] - 0.8f) < 1e-6f);
  EXPECT(fabsf(lses[2][0] - logf(10.0f)) < 1e-6f);
  states[1].lse_base = KVILT_LSE_BASE_TWO;
  EXPECT(kvilt_merge_states(device, states, 2, &states[2], NULL) == KVILT_INVALID_ARGUMENT);
}

int main(void) {
  kvilt_device* device = NULL;
  EXPECT(strlen(kvilt_version()) > 0);
  EXPECT(kvilt_last_error()[0] == '\0');
  EXPECT_OK(kvilt_device_open("cpu", 2, &device));
  if (device == NULL) return 1;
  test_decode(device);
  test_dequantize(device);
  test_merge(device);
  kvilt_device_close(device);
  printf("%s\n", failures == 0 ? "PASSED" : "FAILED");
  return failures == 0 ? 0 : 1;
}
