// AppendKv and DequantizeKv through the public API: what they refuse, and that a refusal changes
// nothing. Each row names the field that the Status must name.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "src/api/cache_fixture.h"

namespace kvilt {
namespace {

using api::test::CacheMemory;
using api::test::CacheShape;
using api::test::RowMemory;

Device TestDevice() { return Device::Open("cpu", {.threads = 1}).value(); }

// A good request by page table: 2 requests of 5 and 2 tokens, the last 3 and 1 of them appended.
struct Case {
  CacheMemory cache{{}};
  RowMemory k{4, 2, 64, 1};
  RowMemory v{4, 2, 64, 2};
  std::vector<std::int64_t> token_indptr = {0, 3, 4};
  std::vector<std::int64_t> slots = {0, 1, -1, 23};
  std::vector<float> globals = {1.0f, 1.0f};
  AppendRequest request;

  Case() {
    cache.SetTable({0, 2, 3}, {0, 2, 1}, {5, 2});
    request = {k.view, v.view, cache.segment, token_indptr, {}, false};
  }
  void UseSlots() {
    request.token_indptr = {};
    request.slots = slots;
  }
  PagedKv& paged() { return std::get<PagedKv>(request.cache.kv); }
  PageTable& table() { return paged().table; }
};

struct Refusal {
  std::string field;
  std::function<void(Case&)> spoil;
  std::string text = {};
};

void ExpectRefusals(const std::vector<Refusal>& refusals) {
  const Device device = TestDevice();
  for (const Refusal& refusal : refusals) {
    Case c;
    refusal.spoil(c);
    const auto before = c.cache.Snapshot();
    HealthCounters k_health;
    HealthCounters v_health;
    const Status status = AppendKv(device, c.request, &k_health, &v_health);
    EXPECT_FALSE(status.ok()) << refusal.field;
    EXPECT_EQ(status.field(), refusal.field) << status.message();
    EXPECT_NE(status.message().find(refusal.text), std::string::npos) << status.message();
    EXPECT_EQ(c.cache.Snapshot(), before) << status.message();
    EXPECT_EQ(k_health, HealthCounters{});
    EXPECT_EQ(v_health, HealthCounters{});
  }
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(AppendKvRefuses, NothingOfTheGoodRequest) {
  const Device device = TestDevice();
  Case c;
  EXPECT_EQ(AppendKv(device, c.request), Status::Ok());
  c.UseSlots();
  EXPECT_EQ(AppendKv(device, c.request), Status::Ok());
}

TEST(AppendKvRefuses, WrongSources) {
  ExpectRefusals({
      {"k", [](Case& c) { c.request.k = {}; }, "not given"},
      {"v", [](Case& c) { c.request.v = {}; }, "not given"},
      {"k.data", [](Case& c) { c.request.k.data = nullptr; }, "null"},
      {"v.data", [](Case& c) { c.request.v.data = nullptr; }, "null"},
      {"k.dtype", [](Case& c) { c.request.k.dtype = DType::kE4M3; }, "f32, bf16, f16"},
      {"v.dtype", [](Case& c) { c.request.v.dtype = DType::kI32; }, "f32, bf16, f16"},
      {"k.rank", [](Case& c) { c.request.k.rank = 2; }},
      {"v.shape[0]", [](Case& c) { c.request.v.shape[0] = 3; }},
      {"k.shape[1]", [](Case& c) { c.request.k.shape[1] = 1; }},
      {"v.shape[2]", [](Case& c) { c.request.v.shape[2] = 48; }},
      {"k.stride[2]", [](Case& c) { c.request.k.stride[2] = 2; }, "expected 1"},
      {"k.stride[0]", [](Case& c) { c.request.k.stride[0] = -128; }},
      {"k.stride[0]",
       [](Case& c) { c.request.k.stride[0] = std::numeric_limits<std::int64_t>::max() / 2; },
       "overflows 64 bits"},
      {"k.shape[0]", [](Case& c) { c.request.k.shape[0] = -1; }},
      {"k.device", [](Case& c) { c.request.k.device.kind = DeviceKind::kCuda; }},
      {"k.data",
       [](Case& c) { c.request.k.data = reinterpret_cast<std::uint8_t*>(c.k.values.data()) + 1; }},
  });
}

TEST(AppendKvRefuses, P08_scales_missing_or_superfluous) {
  ExpectRefusals({
      {"cache.k.scales", [](Case& c) { c.paged().k.scales = {}; }, "nvfp4"},
      {"cache.v.scales", [](Case& c) { c.paged().v.scales = {}; }, "nvfp4"},
      {"cache.v.scales.data", [](Case& c) { c.paged().v.scales.data = nullptr; }},
      {"cache.k.data.data", [](Case& c) { c.paged().k.data.data = nullptr; }},
      {"cache.k.scales",
       [](Case& c) {
         c.paged().k.data.dtype = DType::kE4M3;
         c.request.k.shape[2] = 32;
       },
       "expected none"},
      {"cache.k.scales.shape[3]", [](Case& c) { c.paged().k.scales.shape[3] = 2; }},
      {"cache.k.scales.dtype", [](Case& c) { c.paged().k.scales.dtype = DType::kU8; }},
      {"cache.k.scales.stride[3]", [](Case& c) { c.paged().k.scales.stride[3] = 2; }},
      {"cache.k.data.stride[3]", [](Case& c) { c.paged().k.data.stride[3] = 2; }},
      {"cache.k.data.dtype", [](Case& c) { c.paged().k.data.dtype = DType::kU8; }},
      {"cache.v.data.shape",
       [](Case& c) {
         c.paged().v.data.shape[1] = 1;
         c.paged().v.scales.shape[1] = 1;
       }},
  });
}

TEST(AppendKvRefuses, P13_globals_out_of_range_or_inverted) {
  const auto with = [](float value) {
    return [value](Case& c) { c.paged().k.global.value = value; };
  };
  ExpectRefusals({
      {"cache.k.global.value", with(0.0f)},
      {"cache.k.global.value", with(-0.5f)},
      {"cache.k.global.value", with(kNan)},
      {"cache.k.global.value", with(std::numeric_limits<float>::infinity())},
      {"cache.k.global.value", with(537.6f), "reciprocal"},  // 2688 / 5.
      {"cache.k.global.value", with(1e-9f), "reciprocal"},
      {"cache.k.global.value",
       [](Case& c) {
         c.paged().k.global.value = 1e38f;
         c.paged().k.global.allow_unusual = true;
       }},
      {"cache.v.global.array[1]",
       [](Case& c) {
         c.globals[1] = kNan;
         c.paged().v.global.array = c.globals.data();
         c.paged().v.global.array_size = 2;
       }},
      {"cache.v.global.array_size",
       [](Case& c) {
         c.paged().v.global.array = c.globals.data();
         c.paged().v.global.array_size = 3;
       }},
  });
  const Device device = TestDevice();
  Case c;
  c.paged().k.global.value = 537.6f;
  c.paged().k.global.allow_unusual = true;
  EXPECT_EQ(AppendKv(device, c.request), Status::Ok());
}

TEST(AppendKvRefuses, P06_interleaved_scales_that_do_not_fit) {
  const auto interleave = [](CacheSide& side, int row_blocks) {
    side.scale_layout = ScaleLayout::kInterleaved4;
    side.scale_row_blocks = row_blocks;
  };
  ExpectRefusals({
      {"cache.k.scale_layout", [&](Case& c) { interleave(c.paged().k, 4); }, "only V"},
      {"cache.v.scale_row_blocks", [&](Case& c) { interleave(c.paged().v, 8); }, "expected 4"},
      {"cache.v.scale_row_blocks", [&](Case& c) { c.paged().v.scale_row_blocks = 4; }},
      // A slice of the head dim of a wider cache still says the S it was written with.
      {"cache.v.scale_layout",
       [&](Case& c) {
         interleave(c.paged().v, 4);
         for (TensorView* view : {&c.paged().v.data, &c.paged().v.scales}) view->shape[2] = 3;
         for (TensorView* view : {&c.paged().k.data, &c.paged().k.scales}) view->shape[1] = 3;
       },
       "page_size 3"},
      {"cache.v.scale_layout",
       [&](Case& c) {
         interleave(c.paged().v, 3);
         c.paged().v.data.shape[3] = 24;
         c.paged().v.scales.shape[3] = 3;
         c.request.v.shape[2] = 48;
       },
       "multiple of 64"},
  });
}

TEST(AppendKvRefuses, WrongTables) {
  ExpectRefusals({
      {"token_indptr", [](Case& c) { c.request.token_indptr = {}; }, "slots"},
      {"slots", [](Case& c) { c.request.slots = c.slots; }, "exactly one"},
      {"token_indptr[0]", [](Case& c) { c.token_indptr[0] = 1; }},
      {"token_indptr[2]", [](Case& c) { c.token_indptr[2] = 2; }, "decrease"},
      {"token_indptr[2]", [](Case& c) { c.token_indptr[2] = 5; }, "<= 4"},
      {"token_indptr.dtype", [](Case& c) { c.request.token_indptr.dtype = DType::kF32; }},
      {"token_indptr.data", [](Case& c) { c.request.token_indptr.data = nullptr; }},
      {"token_indptr.device",
       [](Case& c) { c.request.token_indptr.device.kind = DeviceKind::kCuda; }},
      {"cache.table.indptr.size", [](Case& c) { c.request.token_indptr.size = 2; }},
      {"cache.table.kv_len", [](Case& c) { c.cache.kv_len[1] = 0; }, "request 1 has 0 tokens"},
      {"cache.table.indices[1]", [](Case& c) { c.cache.indices[1] = 6; }, "expected 0..5"},
      {"cache.table.indices[2]", [](Case& c) { c.cache.indices[2] = -1; }},
      {"cache.table.indptr[2]", [](Case& c) { c.cache.indptr[2] = 1; }, "decrease"},
      {"cache.table.kv_len[0]", [](Case& c) { c.cache.kv_len[0] = 9; }},
      // Request 1 writes entry 1 of page 2, request 0 entry 0: apart. Longer, they meet.
      {"cache.table.indices",
       [](Case& c) {
         c.cache.indices[2] = 2;
         c.cache.kv_len = {6, 2};
       },
       "page 2 entry 1 would be written for request 0 and again for request 1"},
      {"cache.table.indices",
       [](Case& c) {
         c.cache.indices[2] = 0;
         c.cache.kv_len = {4, 3};
       },
       "again for request 1"},
      {"cache.owners", [](Case& c) { c.request.cache.owners = {0}; }, "private"},
      {"four_over_six",
       [](Case& c) {
         for (CacheSide* side : {&c.paged().k, &c.paged().v}) {
           side->data.dtype = DType::kE4M3;
           side->scales = {};
         }
         c.request.four_over_six = true;
       },
       "neither side is nvfp4"},
  });
}

TEST(AppendKvRefuses, WrongSlots) {
  const auto slots = [](std::vector<std::int64_t> values) {
    return [values](Case& c) {
      c.slots = values;
      c.UseSlots();
    };
  };
  ExpectRefusals({
      {"slots[3]", slots({0, 1, 2, 24}), "expected -1 (skip) or 0..23"},
      {"slots[1]", slots({0, -2, 2, 3})},
      {"slots[2]", slots({7, 1, 7, 3}), "as slots[0]"},
      {"slots.size", slots({0, 1, 2})},
      {"slots[0]", slots({std::numeric_limits<std::int64_t>::max(), 1, 2, 3})},
      {"slots.data",
       [](Case& c) {
         c.UseSlots();
         c.request.slots.data = nullptr;
       }},
      {"slots.device",
       [](Case& c) {
         c.UseSlots();
         c.request.slots.device.kind = DeviceKind::kCuda;
       }},
  });
}

TEST(AppendKvRefuses, OverlappingMemory) {
  ExpectRefusals({
      {"cache.k.data", [](Case& c) { c.request.k.data = c.cache.k_data.data(); }, "overlaps k"},
      {"cache.v.data",
       [](Case& c) {
         c.request.k.dtype = DType::kBF16;  // 1024 bytes: it ends inside v.data.
         c.request.k.data = c.cache.v_data.data() + 256;
       },
       "overlaps k"},
      {"cache.k.data", [](Case& c) { c.paged().v.data.data = c.cache.k_data.data() + 32; }},
      {"cache.k.data", [](Case& c) { c.paged().k.scales.data = c.cache.k_data.data(); }},
      {"cache.k.data.stride[2]", [](Case& c) { c.paged().k.data.stride[2] = 0; }, "overlap"},
      {"cache.v.scales.stride[0]", [](Case& c) { c.paged().v.scales.stride[0] = 8; }},
      {"cache.k.data",
       [](Case& c) {
         c.table().indptr.data = c.cache.k_data.data();
         c.cache.WriteInto(c.cache.k_data, c.cache.indptr);
       },
       "overlaps cache.table.indptr"},
      {"cache.v.data",
       [](Case& c) {
         c.table().indices.data = c.cache.v_data.data();
         c.cache.WriteInto(c.cache.v_data, c.cache.indices);
       },
       "overlaps cache.table.indices"},
      {"cache.k.scales",
       [](Case& c) {
         c.table().kv_len.data = c.cache.k_scales.data();
         c.cache.WriteInto(c.cache.k_scales, c.cache.kv_len);
       },
       "overlaps cache.table.kv_len"},
      {"cache.k.data",
       [](Case& c) {
         c.request.token_indptr.data = c.cache.k_data.data();
         c.cache.WriteInto(c.cache.k_data, c.token_indptr);
       },
       "overlaps token_indptr"},
      {"cache.v.scales",
       [](Case& c) {
         c.UseSlots();
         c.request.slots.data = c.cache.v_scales.data();
         c.cache.WriteInto(c.cache.v_scales, c.slots);
       },
       "overlaps slots"},
  });
}

TEST(AppendKvRefuses, SizesBeyond64Bits) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  ExpectRefusals({
      {"cache.k.data.shape[1]", [](Case& c) { c.paged().k.data.shape[0] = kHuge; }, "overflows"},
      {"cache.k.data.stride[0]", [](Case& c) { c.paged().k.data.stride[0] = kHuge; }, "overflows"},
      {"k.shape[1]", [](Case& c) { c.request.k.shape[0] = kHuge; }, "overflows"},
      {"cache.k.data.shape[3]", [](Case& c) { c.paged().k.data.shape[3] = kHuge >> 22; }},
      {"cache.k.data.shape[2]", [](Case& c) { c.paged().k.data.shape[2] = 1 << 30; }},
  });
}

TEST(AppendKvRefuses, AStream) {
  Case c;
  int handle = 0;
  EXPECT_EQ(AppendKv(TestDevice(), c.request, nullptr, nullptr, {&handle}).field(), "stream");
}

TEST(DequantizeKvRefuses, WrongOutputs) {
  const Device device = TestDevice();
  Case c;
  RowMemory out_k(7, 2, 64, 3);
  RowMemory out_v(7, 2, 64, 4);
  const auto field = [&](const TensorView& k, const TensorView& v) {
    const auto k_before = out_k.values;
    const Status status = DequantizeKv(device, c.request.cache, k, v);
    EXPECT_EQ(out_k.values, k_before);
    return status.field();
  };
  const auto changed = [](TensorView view, const std::function<void(TensorView&)>& change) {
    change(view);
    return view;
  };
  EXPECT_EQ(field({}, {}), "out_k");
  EXPECT_EQ(field(changed(out_k.view, [](auto& t) { t.shape[0] = 6; }), {}), "out_k.shape[0]");
  EXPECT_EQ(field(changed(out_k.view, [](auto& t) { t.dtype = DType::kE4M3; }), {}), "out_k.dtype");
  EXPECT_EQ(field(changed(out_k.view, [](auto& t) { t.data = nullptr; }), {}), "out_k.data");
  EXPECT_EQ(field(changed(out_k.view, [](auto& t) { t.stride[2] = 2; }), {}), "out_k.stride[2]");
  EXPECT_EQ(field(changed(out_k.view, [](auto& t) { t.stride[0] = 64; }), {}), "out_k.stride[1]");
  EXPECT_EQ(field(out_k.view, out_k.view), "out_v");
  EXPECT_EQ(field(out_k.view, changed(out_v.view, [](auto& t) { t.rank = 4; })), "out_v.rank");
  EXPECT_EQ(field({}, changed(out_v.view, [&](auto& t) { t.data = c.cache.k_data.data(); })),
            "out_v");
  const IndexArray indices = c.table().indices;
  std::memcpy(out_k.values.data(), c.cache.indices.data(), 12);
  c.table().indices.data = out_k.values.data();
  EXPECT_EQ(field(out_k.view, {}), "out_k") << "it would overwrite the table";
  c.table().indices = indices;
  c.request.cache.owners = {1, 0};
  const Status owners = DequantizeKv(device, c.request.cache, out_k.view, {});
  EXPECT_EQ(owners.field(), "cache.owners[1]");
  EXPECT_NE(owners.message().find("0, expected a request behind 1"), std::string::npos)
      << owners.message();
  c.request.cache.owners = {};
  c.paged().v.scales = {};
  EXPECT_EQ(field(out_k.view, {}), "cache.v.scales") << "both sides are checked";
  int handle = 0;
  EXPECT_EQ(DequantizeKv(device, c.request.cache, out_k.view, {}, {&handle}).field(), "stream");
}

}  // namespace
}  // namespace kvilt
