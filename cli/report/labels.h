// Labels that stand beside their marks without covering each other.
#pragma once

#include <cstddef>
#include <vector>

namespace kvilt::cli::report {

struct PlacedLabel {
  std::size_t index = 0;  // Of the mark it belongs to.
  double y = 0;           // Baseline.
  double x = 0;           // Of the mark.
};

// Moves labels apart vertically until no two are closer than a line, keeping their order and
// staying above `bottom`; returned from top to bottom. Their x does not count.
std::vector<PlacedLabel> Spread(std::vector<PlacedLabel> labels, double bottom);

// The same, but only labels whose marks are near each other horizontally give way; such neighbours
// get one common x, the rightmost mark's.
std::vector<PlacedLabel> SpreadBeside(std::vector<PlacedLabel> labels, double bottom);

}  // namespace kvilt::cli::report
