// Errors of the demo's calls against float64, as SEMANTICS section 4 defines them.
#pragma once

#include "cli/demo/call.h"
#include "src/oracle/oracle.h"

namespace kvilt::cli::demo {

// || out - ref || / || sum_j p_j |v_j| || over everything added.
class ErrorSums {
 public:
  // The rows of `reference` in the last run of `call`. REQUIRES: the same rows, heads and head dim.
  void AddError(const oracle::Reference& reference, const Call& call);
  // The difference between two calls instead, relative to the same magnitude.
  void AddDifference(const oracle::Reference& reference, const Call& a, const Call& b);
  double value() const;

 private:
  double error_ = 0;  // Sums of squares.
  double magnitude_ = 0;
};

}  // namespace kvilt::cli::demo
