/* The C ABI from C: what it refuses, and the names it gives. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kvilt/kvilt_c.h"
#include "src/api/c_test.h"

static void test_refusals(const kvilt_device* device) {
  /* A request with a field that a newer header might add. */
  struct {
    kvilt_attention_request request;
    int64_t newer;
  } grown;
  kvilt_attention_request request = kvilt_attention_request_default();
  kvilt_device_spec spec = kvilt_device_spec_default();
  kvilt_device* other = NULL;
  kvilt_plan* plan = NULL;
  kvilt_pool* pool = NULL;
  int64_t count = 0;
  /* No machine has so many GPUs: refused with a driver and without. */
  EXPECT_ERROR(kvilt_device_open("cuda:1000", 0, &other), KVILT_UNSUPPORTED, "cuda");
  EXPECT_ERROR(kvilt_device_open("cuda:0", 2, &other), KVILT_INVALID_ARGUMENT,
               "options.threads: 2; accepted: 0");
  EXPECT_ERROR(kvilt_device_open("cuda:x", 0, &other), KVILT_INVALID_ARGUMENT, "is not a device");
  EXPECT_ERROR(kvilt_device_open(NULL, 0, &other), KVILT_INVALID_ARGUMENT, "name: null");
  EXPECT_ERROR(kvilt_device_open("cpu", 1, NULL), KVILT_INVALID_ARGUMENT, "device: null");
  EXPECT(other == NULL);
  EXPECT_OK(kvilt_spec_for("cpu:avx2", &spec));
  EXPECT(spec.simd == 3 && spec.kind == KVILT_CPU);
  spec.size = 0;
  EXPECT_ERROR(kvilt_spec_for("cpu", &spec), KVILT_INVALID_ARGUMENT, "spec.size");
  spec.size = sizeof spec;
  EXPECT_ERROR(kvilt_make_plan(NULL, &spec, NULL, &plan), KVILT_INVALID_ARGUMENT, "request: null");
  request.mask = 9;
  EXPECT_ERROR(kvilt_make_plan(&request, &spec, NULL, &plan), KVILT_INVALID_ARGUMENT, "mask: 9");
  request.mask = KVILT_MASK_NONE;
  request.segment_count = 1;
  EXPECT_ERROR(kvilt_make_plan(&request, &spec, NULL, &plan), KVILT_INVALID_ARGUMENT, "segments");
  request.segment_count = 0;
  request.q.rank = 7;
  EXPECT_ERROR(kvilt_make_plan(&request, &spec, NULL, &plan), KVILT_INVALID_ARGUMENT, "q.rank: 7");
  memset(&grown, 0, sizeof grown);
  grown.request = kvilt_attention_request_default();
  grown.request.size = sizeof grown;
  grown.newer = 1;
  EXPECT_ERROR(kvilt_make_plan(&grown.request, &spec, NULL, &plan), KVILT_UNSUPPORTED, "older");
  grown.newer = 0;
  EXPECT_ERROR(kvilt_make_plan(&grown.request, &spec, NULL, &plan), KVILT_INVALID_ARGUMENT,
               "mask: kUnset"); /* Understood, and incomplete. */
  EXPECT(plan == NULL);
  EXPECT_ERROR(kvilt_run(NULL, &request, NULL, 0, NULL), KVILT_INVALID_ARGUMENT, "prepared: null");
  EXPECT_ERROR(kvilt_pool_create(-1, 4, &pool), KVILT_INVALID_ARGUMENT, "pages");
  EXPECT_OK(kvilt_pool_create(4, 4, &pool));
  EXPECT_ERROR(kvilt_pool_append(pool, NULL, NULL, 1, NULL, &count), KVILT_INVALID_ARGUMENT,
               "sequences: null");
  EXPECT_ERROR(kvilt_pool_append(pool, NULL, NULL, -1, NULL, &count), KVILT_INVALID_ARGUMENT,
               "-1 elements");
  EXPECT_OK(kvilt_pool_append(pool, NULL, NULL, 0, NULL, &count));
  EXPECT(count == 0);
  EXPECT_ERROR(kvilt_copy_pages(device, NULL, NULL, 0, NULL), KVILT_INVALID_ARGUMENT,
               "cache: null");
  kvilt_pool_destroy(pool);
  kvilt_pool_destroy(NULL);
  kvilt_plan_free(NULL);
  kvilt_prepared_free(NULL);
  kvilt_device_close(NULL);
  kvilt_free(NULL);
}

/* Fields that would have no effect as the others stand are refused by name. */
static void test_nothing_is_ignored(const kvilt_device* device) {
  static float memory[64];
  static int32_t indices[4];
  const int64_t one[2] = {0, 0};
  kvilt_device_spec spec = kvilt_device_spec_default();
  kvilt_plan* plan = NULL;
  kvilt_attention_request request;
  kvilt_segment segment;
  kvilt_append_request append_request = kvilt_append_request_default();
  EXPECT_OK(kvilt_spec_for("cpu", &spec));
#define REFUSED(change, text)                                                                    \
  do {                                                                                           \
    request = kvilt_attention_request_default();                                                 \
    request.mask = KVILT_MASK_NONE;                                                              \
    segment = kvilt_segment_default();                                                           \
    request.segments = &segment;                                                                 \
    request.segment_count = 1;                                                                   \
    change;                                                                                      \
    EXPECT_ERROR(kvilt_make_plan(&request, &spec, NULL, &plan), KVILT_INVALID_ARGUMENT, (text)); \
  } while (0)
  REFUSED(request.alibi_slopes.data = memory, "alibi_slopes.rank: 0 with data");
  REFUSED(request.alibi_origin = KVILT_ALIBI_ROW_INDEX, "alibi_origin: 1 without alibi_slopes");
  REFUSED(request.sm_scale = 0.5f, "sm_scale: 0.5 with has_sm_scale 0");
  REFUSED(request.rope_pairing = 1, "rope_pairing: 1 with rope 0");
  REFUSED(request.rope_frequency = 1, "rope_frequency: 1 with rope 0");
  REFUSED(request.rope_theta = 5e5, "rope_theta: 500000 with rope 0");
  REFUSED(request.rope_scale = 8.0, "rope_scale: 8 with rope 0");
  REFUSED(request.rope_rotary_dim = 32, "rope_rotary_dim: 32 with rope 0");
  REFUSED(request.rope_llama31 = 1, "rope_llama31: 1 with rope 0");
  REFUSED(request.rope_low_freq_factor = 2.0, "rope_low_freq_factor: 2 with rope 0");
  REFUSED(request.rope_key_positions = kvilt_i64_array(one, 2), "rope_key_positions: given");
  REFUSED((request.rope = 1, request.rope_high_freq_factor = 8.0),
          "rope_high_freq_factor: 8 with rope_llama31 0");
  REFUSED((request.rope = 1, request.rope_original_length = 4096.0),
          "rope_original_length: 4096 with rope_llama31 0");
  REFUSED(request.q_indptr.reserved = 1, "q_indptr.reserved: 1; accepted: 0");
  REFUSED(segment.reserved = 7, "segments[0].reserved: 7; accepted: 0");
  REFUSED(segment.k.reserved[4] = 1, "segments[0].k.reserved[4]: 1; accepted: 0");
  REFUSED(segment.v.reserved[0] = 1, "segments[0].v.reserved[0]: 1; accepted: 0");
  REFUSED((segment.kind = KVILT_RAGGED, segment.indices = kvilt_i32_array(indices, 4)),
          "segments[0].indices: given with KVILT_RAGGED");
  REFUSED((segment.kind = KVILT_RAGGED, segment.row_stride = 4),
          "segments[0].row_stride: 4 with KVILT_RAGGED");
  REFUSED((segment.kind = KVILT_RAGGED, segment.kv_len = kvilt_i64_array(one, 1)),
          "segments[0].kv_len: given with KVILT_RAGGED");
  REFUSED((segment.kind = KVILT_RAGGED, segment.last_page_len = kvilt_i64_array(one, 1)),
          "segments[0].last_page_len: given with KVILT_RAGGED");
#undef REFUSED
  append_request.reserved = 1;
  EXPECT_ERROR(kvilt_append_kv(device, &append_request, NULL, NULL, NULL), KVILT_INVALID_ARGUMENT,
               "reserved: 1; accepted: 0");
  EXPECT(plan == NULL);
}

int main(void) {
  kvilt_device* device = NULL;
  EXPECT_OK(kvilt_device_open("cpu", 1, &device));
  if (device == NULL) return 1;
  test_refusals(device);
  test_nothing_is_ignored(device);
  kvilt_device_close(device);
  printf("%s\n", failures == 0 ? "PASSED" : "FAILED");
  return failures == 0 ? 0 : 1;
}
