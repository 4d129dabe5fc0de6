// The tables at the head of the scoreboard: what is found, what the probable causes are worth, how
// many clean runs raise an alarm.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "scoreboard/catalogue.h"
#include "scoreboard/outcome.h"
#include "scoreboard/plan.h"

#include <iosfwd>

namespace ttrace::scoreboard {

// The table by precision.
void write_found(std::ostream& out,
                 const Catalogue& catalogue,
                 const Plan& plan,
                 const Outcomes& outcomes);
void write_causes(std::ostream& out,
                  const Catalogue& catalogue,
                  const Plan& plan,
                  const Outcomes& outcomes);
// Each measure for obvious, medium and subtle bugs.
void write_difficulties(std::ostream& out,
                        const Catalogue& catalogue,
                        const Plan& plan,
                        const Outcomes& outcomes);
// The table by precision, with an interval over independent references.
void write_alarms(std::ostream& out, const Plan& plan, const Outcomes& outcomes);

}  // namespace ttrace::scoreboard
