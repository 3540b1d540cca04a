/* The C ABI of Kvilt: the verbs of attention.h and page_pool.h with plain structs (C11, C++).
 *
 * Meaning: every function does what the C++ function of the same name does, with the same fields,
 * units and errors (attention.h, kv_cache.h, plan.h, request.h, page_pool.h).
 *
 * Errors: functions return KVILT_OK (0) or another kvilt_status; kvilt_last_error() is then the
 * text for this thread, valid until its next failing call. Nothing throws or longjmps through this
 * interface. On an error nothing is written through output pointers, apart from out and lse of a
 * run that found a bad page id.
 *
 * Ownership: what kvilt_*_create/open/make/prepare hand out belongs to the caller and is released
 * by the function named beside it; releasing NULL is fine. Handles keep what they need alive, so
 * the order of release is free. Tensors, arrays and structs are borrowed for the call.
 *
 * Threads: a kvilt_device and a kvilt_plan may be used from several threads; so may kvilt_run on
 * one kvilt_prepared, each run with its own workspace and outputs, but not at the same time as
 * kvilt_update_plan on it. A kvilt_pool belongs to one thread at a time.
 *
 * Growth: a struct that begins with `size` may gain fields at its end. Fill it from its
 * kvilt_*_default() function, which sets `size` to what the caller was compiled with. A library
 * that knows fewer fields refuses those it does not know unless they are zero. In arrays of such
 * structs all elements have the size of the first. kvilt_tensor and kvilt_index_array never change.
 *
 * Fields that have no effect as others stand (rope_theta with rope 0) must be 0 or their default;
 * reserved fields must be 0.
 */
#ifndef KVILT_KVILT_C_H_
#define KVILT_KVILT_C_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ status */

typedef int32_t kvilt_status;
enum {
  KVILT_OK = 0,
  KVILT_INVALID_ARGUMENT = 1,
  KVILT_UNSUPPORTED = 2,
  KVILT_RESOURCE_EXHAUSTED = 3,
  KVILT_FAILED_PRECONDITION = 4,
  KVILT_RUNTIME = 5
};

/* "<field>: <problem>" of this thread's last failing call; "" before the first. Never NULL. */
const char* kvilt_last_error(void);
/* "0.1.0" */
const char* kvilt_version(void);

/* ----------------------------------------------------------------- tensors */

enum { /* dtype */
       KVILT_F32 = 0,
       KVILT_BF16 = 1,
       KVILT_F16 = 2,
       KVILT_E4M3 = 3,
       KVILT_E5M2 = 4,
       KVILT_NVFP4 = 5,
       KVILT_U8 = 6,
       KVILT_I32 = 7,
       KVILT_I64 = 8
};
enum { KVILT_CPU = 0, KVILT_CUDA = 1 }; /* device_kind */
enum { KVILT_MAX_RANK = 6 };

/* Shapes and strides count storage elements (NVFP4: bytes of two codes). rank 0 = not given. */
typedef struct kvilt_tensor {
  void* data;
  int32_t dtype;
  int32_t rank;
  int64_t shape[6];
  int64_t stride[6];
  int32_t device_kind;
  int32_t device_index;
} kvilt_tensor;

/* Unit stride. data NULL with count 0 = not given. */
typedef struct kvilt_index_array {
  const void* data;
  int32_t dtype; /* KVILT_I32, KVILT_I64 */
  int32_t device_kind;
  int64_t count;
  int32_t device_index;
  int32_t reserved; /* 0 */
} kvilt_index_array;

/* A dense row-major view on the CPU. */
static inline kvilt_tensor kvilt_dense(const void* data, int32_t dtype, int32_t rank,
                                       const int64_t* shape) {
  kvilt_tensor t;
  int64_t step = 1;
  int32_t dim;
  memset(&t, 0, sizeof t);
  t.data = (void*)(uintptr_t)data;
  t.dtype = dtype;
  t.rank = rank;
  for (dim = rank - 1; dim >= 0; --dim) {
    t.shape[dim] = shape[dim];
    t.stride[dim] = step;
    step *= shape[dim];
  }
  return t;
}
static inline kvilt_index_array kvilt_i32_array(const int32_t* data, int64_t count) {
  kvilt_index_array a;
  memset(&a, 0, sizeof a);
  a.data = data;
  a.dtype = KVILT_I32;
  a.count = count;
  return a;
}
static inline kvilt_index_array kvilt_i64_array(const int64_t* data, int64_t count) {
  kvilt_index_array a;
  memset(&a, 0, sizeof a);
  a.data = data;
  a.dtype = KVILT_I64;
  a.count = count;
  return a;
}

/* ------------------------------------------------------------------ caches */

enum { KVILT_NHD = 0, KVILT_HND = 1 };                         /* layout */
enum { KVILT_SCALE_LINEAR = 0, KVILT_SCALE_INTERLEAVED4 = 1 }; /* scale_layout */
enum { KVILT_PAGED = 0, KVILT_RAGGED = 1 };                    /* kind */

/* K or V of a segment (CacheSide). */
typedef struct kvilt_side {
  kvilt_tensor data;
  kvilt_tensor scales;
  int32_t layout;
  int32_t scale_layout;
  int32_t scale_row_blocks;
  int32_t allow_unusual_scale;
  float global; /* Used when global_array is NULL. */
  int32_t global_device_kind;
  const float* global_array;
  int64_t global_count; /* 1 or kv_heads with global_array. */
  int32_t global_device_index;
  int32_t reserved[5]; /* 0 */
} kvilt_side;

typedef struct kvilt_segment {
  size_t size;
  int32_t kind;
  int32_t reserved; /* 0 */
  kvilt_side k;
  kvilt_side v;
  kvilt_index_array indptr; /* KVILT_PAGED: of a CSR table; KVILT_RAGGED: tokens. */
  /* KVILT_PAGED only: */
  kvilt_index_array indices;
  int64_t row_stride;
  kvilt_index_array kv_len;
  kvilt_index_array last_page_len;
  /* Shared segments: the requests that own it. */
  const int32_t* owners;
  int64_t owner_count;
} kvilt_segment;

static inline kvilt_segment kvilt_segment_default(void) {
  kvilt_segment s;
  memset(&s, 0, sizeof s);
  s.size = sizeof s;
  s.k.global = 1.0f;
  s.v.global = 1.0f;
  return s;
}

/* ----------------------------------------------------------------- request */

enum { /* mask; there is no default */
       KVILT_MASK_UNSET = 0,
       KVILT_MASK_NONE = 1,
       KVILT_MASK_CAUSAL = 2,
       KVILT_MASK_CUSTOM = 3,
       KVILT_MASK_TREE = 4
};
enum { KVILT_LSE_NATURAL = 0, KVILT_LSE_BASE_TWO = 1 };           /* lse_base */
enum { KVILT_ALIBI_BOTTOM_RIGHT = 0, KVILT_ALIBI_ROW_INDEX = 1 }; /* alibi_origin */
enum { KVILT_ROPE_HALF = 0, KVILT_ROPE_INTERLEAVED = 1 };         /* rope_pairing */
enum { KVILT_ROPE_ROTARY = 0, KVILT_ROPE_PROPORTIONAL = 1 };      /* rope_frequency */

typedef struct kvilt_attention_request {
  size_t size;
  kvilt_tensor q;
  kvilt_tensor q_scales;
  kvilt_index_array q_indptr;
  const kvilt_segment* segments;
  int64_t segment_count;
  kvilt_tensor out;
  kvilt_tensor lse;
  int32_t lse_base;
  int32_t has_sm_scale; /* 0: 1 / sqrt(head_dim_qk) */
  float sm_scale;
  float q_scale;
  float logits_soft_cap;
  int32_t mask;
  kvilt_tensor mask_bits;
  kvilt_index_array mask_indptr;
  int64_t window_left;
  int64_t window_right;
  kvilt_index_array q_positions;
  kvilt_tensor alibi_slopes; /* Given = ALiBi is on. */
  int32_t alibi_origin;
  int32_t bias_before_cap;
  kvilt_tensor sink;
  int32_t kv_settled;
  int32_t rope; /* 1: rotate Q and K; the fields below. */
  int32_t rope_pairing;
  int32_t rope_frequency;
  double rope_theta;
  double rope_scale;
  int32_t rope_rotary_dim;
  int32_t rope_llama31; /* 1: smooth with the three factors below. */
  double rope_low_freq_factor;
  double rope_high_freq_factor;
  double rope_original_length;
  kvilt_index_array rope_key_positions;
} kvilt_attention_request;

static inline kvilt_attention_request kvilt_attention_request_default(void) {
  kvilt_attention_request r;
  memset(&r, 0, sizeof r);
  r.size = sizeof r;
  r.q_scale = 1.0f;
  r.window_left = -1;
  r.window_right = -1;
  r.rope_theta = 10000.0;
  r.rope_scale = 1.0;
  r.rope_low_freq_factor = 1.0;
  r.rope_high_freq_factor = 4.0;
  r.rope_original_length = 8192.0;
  return r;
}

/* ------------------------------------------------------------------ device */

typedef struct kvilt_device kvilt_device;

typedef struct kvilt_device_spec {
  size_t size;
  char name[32];
  int32_t kind; /* KVILT_CPU, KVILT_CUDA */
  int32_t slots;
  int32_t simd; /* SimdTarget: 0 scalar, 1 sse4, 2 neon, 3 avx2, 4 avx512, 5 avx512_bf16 */
  int32_t arch;
  int64_t l2_bytes;
  int64_t smem_per_block_bytes;
  int64_t smem_per_sm_bytes;
  int64_t registers_per_sm;
  double read_gb_per_s;
} kvilt_device_spec;

static inline kvilt_device_spec kvilt_device_spec_default(void) {
  kvilt_device_spec s;
  memset(&s, 0, sizeof s);
  s.size = sizeof s;
  return s;
}

/* threads: 0 = one per hardware thread. Release with kvilt_device_close. */
kvilt_status kvilt_device_open(const char* name, int32_t threads, kvilt_device** device);
void kvilt_device_close(kvilt_device* device);
/* `spec`: from kvilt_device_spec_default; filled as far as its size goes. */
kvilt_status kvilt_device_get_spec(const kvilt_device* device, kvilt_device_spec* spec);
kvilt_status kvilt_spec_for(const char* name, kvilt_device_spec* spec);

/* Memory aligned to 256, not initialised: for workspaces. Release with kvilt_free; bytes 0 gives
 * NULL. */
kvilt_status kvilt_allocate(const kvilt_device* device, int64_t bytes, void** memory);
void kvilt_free(void* memory);

/* -------------------------------------------------------------------- plan */

typedef struct kvilt_plan kvilt_plan;

enum { KVILT_SPLIT_AUTO = 0, KVILT_SPLIT_FIXED = 1, KVILT_SPLIT_OFF = 2 }; /* split */
enum { KVILT_ACCURACY_NORMAL = 0, KVILT_ACCURACY_NEAR_EXACT = 1, KVILT_ACCURACY_F32 = 2 };

typedef struct kvilt_plan_options {
  size_t size;
  int32_t split;
  int32_t accuracy;
  int64_t fixed_split_rows;
  int64_t workspace_limit_bytes; /* -1 = no limit */
  const char* path;              /* NULL or "" = chosen */
  int32_t no_cascade;            /* 1: PlanOptions::allow_cascade = false */
  int32_t no_check_pages;        /* 1: PlanOptions::check_pages = false */
} kvilt_plan_options;

static inline kvilt_plan_options kvilt_plan_options_default(void) {
  kvilt_plan_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o;
  o.workspace_limit_bytes = -1;
  return o;
}

typedef struct kvilt_plan_info {
  size_t size;
  int64_t workspace_bytes;
  int64_t plan_data_bytes;
  int64_t kv_bytes;
  double flops;
  int64_t items;
  int64_t max_splits;
  int64_t merged_rows;
  int64_t cascade_items;
  double balance;
  int32_t lse_has_sink;
  int32_t lse_base;
} kvilt_plan_info;

static inline kvilt_plan_info kvilt_plan_info_default(void) {
  kvilt_plan_info i;
  memset(&i, 0, sizeof i);
  i.size = sizeof i;
  return i;
}

/* options NULL = defaults. Release with kvilt_plan_free. */
kvilt_status kvilt_make_plan(const kvilt_attention_request* request, const kvilt_device_spec* spec,
                             const kvilt_plan_options* options, kvilt_plan** plan);
void kvilt_plan_free(kvilt_plan* plan);
kvilt_status kvilt_plan_get_info(const kvilt_plan* plan, kvilt_plan_info* info);
/* Describe or, with json, DescribeJson. Writes at most capacity bytes, always ending in NUL when
 * capacity > 0; *length (may be NULL) is the length of the whole text without the NUL. */
kvilt_status kvilt_plan_describe(const kvilt_plan* plan, int32_t explain, int32_t items,
                                 int32_t json, char* text, size_t capacity, size_t* length);

/* --------------------------------------------------------------------- run */

typedef struct kvilt_prepared kvilt_prepared;

/* The plan is copied. Release with kvilt_prepared_free. */
kvilt_status kvilt_prepare(const kvilt_device* device, const kvilt_plan* plan,
                           kvilt_prepared** prepared);
void kvilt_prepared_free(kvilt_prepared* prepared);
/* Of the plan that runs now: kvilt_update_plan changes it. */
kvilt_status kvilt_prepared_get_info(const kvilt_prepared* prepared, kvilt_plan_info* info);

/* stream: NULL on the CPU, here and below. */
kvilt_status kvilt_run(const kvilt_prepared* prepared, const kvilt_attention_request* request,
                       void* workspace, int64_t workspace_bytes, void* stream);
/* The first error that a run found on the device since the last call; clears it. */
kvilt_status kvilt_take_error(const kvilt_prepared* prepared);
kvilt_status kvilt_update_plan(const kvilt_prepared* prepared,
                               const kvilt_attention_request* request, void* stream);

/* ------------------------------------------------------------------- merge */

typedef struct kvilt_attention_state {
  size_t size;
  kvilt_tensor out;
  kvilt_tensor lse;
  int32_t lse_base;
  int32_t has_sink;
} kvilt_attention_state;

static inline kvilt_attention_state kvilt_attention_state_default(void) {
  kvilt_attention_state s;
  memset(&s, 0, sizeof s);
  s.size = sizeof s;
  return s;
}

kvilt_status kvilt_merge_states(const kvilt_device* device, const kvilt_attention_state* states,
                                int64_t state_count, const kvilt_attention_state* result,
                                void* stream);

/* ------------------------------------------------------ append, dequantize */

typedef struct kvilt_health {
  int64_t nan;
  int64_t infinite;
  int64_t saturated;
  int64_t flushed_blocks;
  int64_t skipped;
} kvilt_health;

typedef struct kvilt_append_request {
  size_t size;
  kvilt_tensor k;
  kvilt_tensor v;
  const kvilt_segment* cache;
  kvilt_index_array token_indptr; /* One of the two. */
  kvilt_index_array slots;
  int32_t four_over_six;
  int32_t reserved; /* 0 */
} kvilt_append_request;

static inline kvilt_append_request kvilt_append_request_default(void) {
  kvilt_append_request r;
  memset(&r, 0, sizeof r);
  r.size = sizeof r;
  return r;
}

/* k_health, v_health: NULL, or counters that are added to. */
kvilt_status kvilt_append_kv(const kvilt_device* device, const kvilt_append_request* request,
                             kvilt_health* k_health, kvilt_health* v_health, void* stream);
/* out_k, out_v: NULL = not wanted. */
kvilt_status kvilt_dequantize_kv(const kvilt_device* device, const kvilt_segment* cache,
                                 const kvilt_tensor* out_k, const kvilt_tensor* out_v,
                                 void* stream);

/* --------------------------------------------------------------- page pool */

typedef struct kvilt_pool kvilt_pool;

typedef struct kvilt_page_copy {
  int64_t from;
  int64_t to;
  int64_t rows;
} kvilt_page_copy;

/* Release with kvilt_pool_destroy. */
kvilt_status kvilt_pool_create(int64_t pages, int64_t page_size, kvilt_pool** pool);
void kvilt_pool_destroy(kvilt_pool* pool);
kvilt_status kvilt_pool_new_sequence(kvilt_pool* pool, int64_t* sequence);
kvilt_status kvilt_pool_fork(kvilt_pool* pool, int64_t parent, int64_t* sequence);
/* copies: room for `count` entries (a sequence needs at most one); *copy_count tells how many were
 * written. Copy them with kvilt_copy_pages, in every cache, before writing the new tokens. */
kvilt_status kvilt_pool_append(kvilt_pool* pool, const int64_t* sequences, const int64_t* tokens,
                               int64_t count, kvilt_page_copy* copies, int64_t* copy_count);
kvilt_status kvilt_pool_truncate(kvilt_pool* pool, int64_t sequence, int64_t tokens);
kvilt_status kvilt_pool_free(kvilt_pool* pool, int64_t sequence);
kvilt_status kvilt_pool_length(const kvilt_pool* pool, int64_t sequence, int64_t* tokens);
int64_t kvilt_pool_free_pages(const kvilt_pool* pool);
int64_t kvilt_pool_owners(const kvilt_pool* pool, int64_t page);
/* The CSR table of a batch: indptr [count + 1], kv_len [count], indices as far as `capacity` goes.
 * *page_count is the number of indices; when it is beyond capacity the call fails with
 * KVILT_RESOURCE_EXHAUSTED and writes *page_count alone, so capacity 0 asks for the size. */
kvilt_status kvilt_pool_table(const kvilt_pool* pool, const int64_t* sequences, int64_t count,
                              int64_t* indptr, int64_t* kv_len, int32_t* indices, int64_t capacity,
                              int64_t* page_count);
kvilt_status kvilt_copy_pages(const kvilt_device* device, const kvilt_segment* cache,
                              const kvilt_page_copy* copies, int64_t count, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* KVILT_KVILT_C_H_ */
