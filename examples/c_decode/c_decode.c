/* One decode step over a paged NVFP4 cache, through the C ABI: the same as examples/decode. */
#include <kvilt/kvilt_c.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kHeads = 32, kKvHeads = 8, kHeadDim = 128, kPages = 256, kPageSize = 16, kTokens = 3000 };

static void Must(kvilt_status status) {
  if (status == KVILT_OK) return;
  fprintf(stderr, "%s\n", kvilt_last_error());
  exit(1);
}

static void* Allocate(size_t bytes) {
  void* memory = calloc(bytes, 1);
  if (memory == NULL) abort();
  return memory;
}

static float* Wave(size_t size, double step) {
  float* values = Allocate(size * sizeof(float));
  for (size_t i = 0; i < size; ++i) values[i] = (float)sin(step * (double)i);
  return values;
}

/* K or V: two 4-bit codes per byte, and one scale for each 16 elements. */
static kvilt_side Side(void) {
  const int64_t code_shape[] = {kPages, kPageSize, kKvHeads, kHeadDim / 2};
  const int64_t scale_shape[] = {kPages, kPageSize, kKvHeads, kHeadDim / 16};
  const size_t rows = (size_t)kPages * kPageSize * kKvHeads;
  kvilt_side side = {0};
  side.data = kvilt_dense(Allocate(rows * kHeadDim / 2), KVILT_NVFP4, 4, code_shape);
  side.scales = kvilt_dense(Allocate(rows * kHeadDim / 16), KVILT_E4M3, 4, scale_shape);
  side.global = 1.0f / 2688; /* Largest magnitude / (6 * 448). */
  return side;
}

static void FreeSide(kvilt_side side) {
  free(side.data.data);
  free(side.scales.data);
}

/* Makes a plan, prints it, runs it. */
static void Attend(kvilt_device* device, const kvilt_attention_request* request) {
  kvilt_device_spec spec = kvilt_device_spec_default();
  kvilt_plan_info info = kvilt_plan_info_default();
  kvilt_plan* plan = NULL;
  kvilt_prepared* prepared = NULL;
  void* workspace = NULL;
  size_t length = 0;
  Must(kvilt_device_get_spec(device, &spec));
  Must(kvilt_make_plan(request, &spec, NULL, &plan));

  Must(kvilt_plan_describe(plan, 0, 0, 0, NULL, 0, &length));
  char* text = Allocate(length + 1);
  Must(kvilt_plan_describe(plan, 0, 0, 0, text, length + 1, NULL));
  puts(text);
  free(text);

  Must(kvilt_plan_get_info(plan, &info));
  Must(kvilt_prepare(device, plan, &prepared));
  Must(kvilt_allocate(device, info.workspace_bytes, &workspace));
  Must(kvilt_run(prepared, request, workspace, info.workspace_bytes, NULL));
  kvilt_free(workspace);
  kvilt_prepared_free(prepared);
  kvilt_plan_free(plan);
}

int main(void) {
  kvilt_device* device = NULL;
  Must(kvilt_device_open("cpu", 0, &device));

  /* Pages for one sequence of 3000 tokens. */
  kvilt_pool* pool = NULL;
  kvilt_page_copy copies[1];
  int64_t sequence = 0, copy_count = 0, page_count = 0;
  int64_t page_indptr[2], kv_len[1];
  int32_t pages[kPages];
  const int64_t new_tokens = kTokens;
  Must(kvilt_pool_create(kPages, kPageSize, &pool));
  Must(kvilt_pool_new_sequence(pool, &sequence));
  Must(kvilt_pool_append(pool, &sequence, &new_tokens, 1, copies, &copy_count));
  Must(kvilt_pool_table(pool, &sequence, 1, page_indptr, kv_len, pages, kPages, &page_count));

  kvilt_segment cache = kvilt_segment_default();
  cache.kind = KVILT_PAGED;
  cache.k = Side();
  cache.v = Side();
  cache.indptr = kvilt_i64_array(page_indptr, 2);
  cache.indices = kvilt_i32_array(pages, page_count);
  cache.kv_len = kvilt_i64_array(kv_len, 1);

  /* Quantize keys and values into the pages. */
  const int64_t kv_shape[] = {kTokens, kKvHeads, kHeadDim};
  const int64_t k_rows[] = {0, kTokens};
  float* k = Wave((size_t)kTokens * kKvHeads * kHeadDim, 0.37);
  float* v = Wave((size_t)kTokens * kKvHeads * kHeadDim, 0.73);
  kvilt_append_request append = kvilt_append_request_default();
  append.k = kvilt_dense(k, KVILT_F32, 3, kv_shape);
  append.v = kvilt_dense(v, KVILT_F32, 3, kv_shape);
  append.cache = &cache;
  append.token_indptr = kvilt_i64_array(k_rows, 2);
  Must(kvilt_append_kv(device, &append, NULL, NULL, NULL));

  /* Attend to them with one query token: 32 query heads over 8 KV heads. */
  const int64_t q_shape[] = {1, kHeads, kHeadDim}, lse_shape[] = {1, kHeads}, q_rows[] = {0, 1};
  float* q = Wave((size_t)kHeads * kHeadDim, 0.11);
  float* out = Wave((size_t)kHeads * kHeadDim, 0.0);
  float lse[kHeads];
  kvilt_attention_request request = kvilt_attention_request_default();
  request.q = kvilt_dense(q, KVILT_F32, 3, q_shape);
  request.q_indptr = kvilt_i64_array(q_rows, 2);
  request.segments = &cache;
  request.segment_count = 1;
  request.mask = KVILT_MASK_CAUSAL;
  request.out = kvilt_dense(out, KVILT_F32, 3, q_shape);
  request.lse = kvilt_dense(lse, KVILT_F32, 2, lse_shape);
  Attend(device, &request);

  for (int head = 0; head < kHeads; head += 8) {
    const float* row = out + (size_t)head * kHeadDim;
    printf("head %2d: lse %.4f, out %+.5f %+.5f %+.5f %+.5f\n", head, (double)lse[head],
           (double)row[0], (double)row[1], (double)row[2], (double)row[3]);
  }

  free(k);
  free(v);
  free(q);
  free(out);
  FreeSide(cache.k);
  FreeSide(cache.v);
  kvilt_pool_destroy(pool);
  kvilt_device_close(device);
  return 0;
}
