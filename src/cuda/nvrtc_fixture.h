// Tests that compile kernels: they need NVRTC and no GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "src/cuda/kernel_sources.h"
#include "src/cuda/nvrtc.h"

namespace kvilt::cuda {

// The archs that kernels are compiled for in tests.
inline constexpr int kTestArchs[] = {80, 86, 89, 90, 100, 103, 120, 121};

// The library's sources and one more.
inline std::vector<SourceText> SourcesWith(std::string_view name, std::string_view text) {
  const auto sources = KernelSources();
  std::vector<SourceText> all(sources.begin(), sources.end());
  all.push_back({name, text});
  return all;
}

// Without NVRTC these tests say NOT RUN; with KVILT_REQUIRE_NVRTC=1, as in CI, they fail.
class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const Nvrtc*> nvrtc = Nvrtc::Load();
    if (nvrtc.ok()) return;
    const char* required = std::getenv("KVILT_REQUIRE_NVRTC");
    if (required != nullptr && std::string(required) == "1") FAIL() << nvrtc.status().message();
    GTEST_SKIP() << "NOT RUN: " << nvrtc.status().message();
  }
};

}  // namespace kvilt::cuda
