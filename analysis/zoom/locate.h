// Names the first operator of a zoom that round-off does not explain.
//
// The comparison judges the results that both programs have. The first wrong one need not be the
// fault of the operator that returned it: if it reads, directly or through copies, what an operator
// made that only one program runs, that operator is named. So is a collective whose sum is wrong.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/findings/report.h"
#include "analysis/findings/zoom_report.h"
#include "analysis/zoom/zoomed_pair.h"

namespace ttrace {

// `compared`: the comparison of the pair's traces. Target and folder of the result are left empty.
[[nodiscard]] ZoomReport locate(const ZoomedPair& pair, const Report& compared);

}  // namespace ttrace
