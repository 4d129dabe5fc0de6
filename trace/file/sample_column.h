// The column of the index that says which dimensions hold samples.
#pragma once

#include "trace/file/record.h"

#include <vector>

namespace ttrace {

class Hdf5Input;

// Sets Record::samples of the records of the table `index`, which are in its order. Changes nothing
// in a file of an earlier version, whose index does not have the column. Throws FormatError for a
// text that does not fit its record.
void read_samples(const Hdf5Input& file, const char* index, std::vector<Record>& records);

}  // namespace ttrace
