// Labels that stand beside their marks without covering each other.
#pragma once

#include <cstddef>
#include <vector>

namespace kvilt::cli::report {

struct PlacedLabel {
  std::size_t index = 0;  // Of the mark it belongs to.
  double y = 0;           // Baseline.
};

// Moves labels apart vertically until no two are closer than a line, keeping their order and
// staying above `bottom`; returned from top to bottom.
std::vector<PlacedLabel> Spread(std::vector<PlacedLabel> labels, double bottom);

}  // namespace kvilt::cli::report
