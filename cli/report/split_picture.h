// A plan's split assignment: which stretch of keys which block of the grid has, and how long each
// block is busy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvilt::cli::report {

// A stretch of keys that one work item has.
struct SplitBar {
  std::int64_t key_begin = 0;
  std::int64_t key_end = 0;
  std::size_t block = 0;
  std::string tip;
};
// Bars of the same query rows and KV heads.
using SplitRow = std::vector<SplitBar>;
struct SplitRequest {
  std::string label;
  std::vector<SplitRow> rows;
};

struct SplitItem {
  double cost = 0;
  std::string tip;
};
// Items of each block (or thread) in order. All launches run one after another.
struct SplitLaunch {
  std::string label;
  std::vector<std::vector<SplitItem>> blocks;
};

struct SplitData {
  std::string title;
  std::vector<std::string> facts;  // Lines under the title.
  std::int64_t keys = 0;           // Of the longest request.
  std::vector<SplitRequest> requests;
  std::vector<SplitLaunch> launches;
  std::string block_word = "block";
  std::string cost_word = "us";  // Unit of the costs.
};

// An SVG file. Above: requests x keys, each piece in the colour of its block. Below: the blocks of
// each launch as lanes, an item as long as its cost; lines mark the busiest block and the ideal.
std::string SplitPicture(const SplitData& data);

}  // namespace kvilt::cli::report
